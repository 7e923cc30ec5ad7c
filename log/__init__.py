"""Two products over Kafka that do not know each other, and what they share.

table       the table's log: one protocol, in a folder or in a topic (table/PROTOCOL.md)
connector   topics as tables (connector/CONNECTORS.md, FORMATS.md, METADATA.md)
kafka       Kafka's clients: alone in the product it imports confluent_kafka
json_rows   rows as JSON objects and back           slices  tables in pieces that memory holds
"""

"""The table's log, and Kafka topics as tables. These two parts do not know each other, and share Kafka's clients.

table       the table's log: one protocol, in a folder or in a topic (table/PROTOCOL.md)
connector   topics as tables (connector/CONNECTORS.md, FORMATS.md, METADATA.md)
kafka       Kafka's clients: the only package that imports confluent_kafka
json_rows   rows as JSON objects and back           slices  splits tables into pieces of bounded size
"""

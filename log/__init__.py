"""The table as a log: one protocol, embedded and in Kafka (PROTOCOL.md); topics as tables (CONNECTORS.md).

store       what every log can do                   systems     opens a table's log: one of these two
embedded    the log in a folder                     kafka       the log as a topic; tables that are topics
segments, record_batches, embedded_tail: its partitions, their payload, and reading as it grows
rows        the shape of rows in a log              transaction_ids  ids of its transactions
open_transaction  a transaction that holds readers of the log back
retention   changed with the commit that says so    tailing     a log's tail, up to offsets that it has
connectors  declarations of topics as tables        metadata    their metadata columns (METADATA.md)
formats     spellings of a row in a message (FORMATS.md), and of the log's own records
"""

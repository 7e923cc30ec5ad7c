"""The table as a log: one protocol, in a folder or in a Kafka topic (PROTOCOL.md).

store       what every log can do                   systems     opens a table's log: one of these two
embedded    the log in a folder                     on_kafka    the log as a topic
log_record  a change as a message                   rows        the shape of rows in a log
retention   changed with the commit that says so    tailing     a log's tail, up to offsets that it has
transaction_ids  ids of its transactions            open_transaction  one that holds readers of the log back
"""

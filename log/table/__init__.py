"""A table's log: one protocol for a log in a folder and for a log in a Kafka topic (PROTOCOL.md).

store       the interface of every log              config      how a process opens a log
systems     opens a table's log, of either kind
embedded    the log in a folder                     on_kafka    the log in a Kafka topic
log_record  a change as a message                   rows        the columns of rows in a log
tailing     reads a log's tail up to given offsets
session     one open log for a piece of work        transaction_ids  makes and reads ids of transactions
open_transaction  a transaction that readers of the log wait for
"""

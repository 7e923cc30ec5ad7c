"""Kafka tables in Spark: topics as DataFrames and streams.

table    `SparkKafkaTable`, which `SparkStore.kafka_table` returns
reading  the topic's messages, in batches and as a stream
sink     a frame's rows as messages
options  a declaration as options of ``format("tablestore")``
offsets  how far a stream has come, as its checkpoint keeps it
"""

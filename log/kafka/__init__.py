"""Kafka's clients, for the table's log and for the connector: only this package imports confluent_kafka.

settings     what every client begins with             errors       librdkafka's errors as ours
admin        requests to the admin client              causes       why a client has no connection
topic        one topic: settings, leaders, offsets     groups       offsets that a group keeps
sending      messages into a producer's queue          producers    kept producers, and transactions' ends
fetching     messages from chosen offsets              messages     messages by columns
wire, security, connection, requests  Kafka's protocol by kafka-python, where librdkafka has no call
transactions, hanging        transactions from outside their producer
"""

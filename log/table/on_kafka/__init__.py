"""The table's log as a Kafka topic (PROTOCOL.md sections 2 and 7)."""

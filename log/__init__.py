"""The table as a log: one protocol (`log.store`), an embedded log and Kafka. PROTOCOL.md is normative."""

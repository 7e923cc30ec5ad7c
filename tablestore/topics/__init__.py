"""Reads Kafka tables: messages as rows, and the complete changes of topics with upserts."""

"""Schemas and values of Kafka Connect in JSON messages (FORMATS.md)."""

"""Writes Debezium topics into tables: derives columns from messages, reads them, and writes their changes."""

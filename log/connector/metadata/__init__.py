"""Metadata columns of Kafka tables: which keys there are, casts, and a row's layout (FLIP-107; METADATA.md). Pure."""

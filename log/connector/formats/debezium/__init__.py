"""``debezium-json`` (FORMATS.md)."""

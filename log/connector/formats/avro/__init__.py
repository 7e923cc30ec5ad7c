"""``avro`` and ``avro-confluent`` (FORMATS.md)."""

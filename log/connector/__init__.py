"""Tables that are Kafka topics: what they are declared with, and rows to messages and back (CONNECTORS.md)."""

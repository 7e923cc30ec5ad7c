"""Formats of messages: pure functions between Arrow and bytes (FORMATS.md)."""

"""Spellings of a row in a message: pure functions between Arrow and bytes."""

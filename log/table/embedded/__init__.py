"""The embedded log: a folder with one SQLite file for each partition (PROTOCOL.md section 6)."""

"""Recovers and repairs a table's log: after dead writers, after races, and after the log has lost transactions."""

"""Repairs of a table's log: after dead writers, after races, and after losses of the log itself."""

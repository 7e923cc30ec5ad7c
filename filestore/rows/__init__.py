"""Rows in memory: checks before a write, their buckets and partitions, and comparisons of their keys."""

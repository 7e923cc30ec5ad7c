"""Sorting more rows than memory holds: runs that are sorted in memory, put away, and merged (external merge sort)."""

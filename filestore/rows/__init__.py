"""Rows in memory: what they are checked for, where they belong, how their keys compare."""

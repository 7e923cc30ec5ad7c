"""Committing a version: what a commit proposes, what conflicts with it, and the loops that write it."""

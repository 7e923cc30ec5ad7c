"""Sorts more rows than fit into memory: sorts runs in memory, writes them to disk, and merges them."""

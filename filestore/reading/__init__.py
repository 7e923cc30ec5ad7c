"""Reads versions: pruning, scans, point reads, slots with pending runs, and the difference between two versions."""

"""Finds the positions of keys in files, and reads rows by position."""

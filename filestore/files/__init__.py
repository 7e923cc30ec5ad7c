"""Data files: writing, opening and decoding them by row group, and their statistics."""

"""Caches columns of data files on the local disk and in memory, so that look-ups need not decode them again."""

"""Converts upserts to complete changes: the normalizer, its progress in the input, and its results."""

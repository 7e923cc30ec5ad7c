"""Upserts to complete changes: what a normalizer is, where it stands in its input, what it gives."""

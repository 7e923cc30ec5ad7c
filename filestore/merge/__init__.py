"""Merge engines: how rows of one key become one row. One file an engine, all over Arrow and polars."""

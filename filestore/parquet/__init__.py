"""Parquet files as bytes: where their parts are, the checksums of all of them, and whole files in memory."""

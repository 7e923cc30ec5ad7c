"""What look-ups keep on the local disk and in memory, so that files that are asked again need no Parquet."""

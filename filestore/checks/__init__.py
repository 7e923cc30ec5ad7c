"""What the doctor looks at: history, files, keys, leftovers (FORMAT.md section 12). Reads only, streams, bounded."""

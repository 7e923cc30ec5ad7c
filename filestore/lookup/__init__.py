"""Keys to positions in files, positions to rows, and what is kept on the local disk to find them without decoding."""

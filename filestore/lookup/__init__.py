"""Keys to positions in files, and positions to rows."""

"""Following a table: where readers begin, the seam of snapshot and log, changes in pieces that any process reads."""

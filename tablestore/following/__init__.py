"""Following a table: where readers begin, the switch from snapshot to log, and changes in pieces for any process."""

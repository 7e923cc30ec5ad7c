"""Writing a table's files, log and snapshot as one commit, and the other operations that commit a version."""

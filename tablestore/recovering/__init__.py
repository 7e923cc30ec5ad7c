"""What dead writers, races and the log itself left wrong in a table's log, and how writers put it right."""

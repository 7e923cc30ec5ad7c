"""Writing across both stores: files, log and snapshot as one commit; and what else makes a version."""

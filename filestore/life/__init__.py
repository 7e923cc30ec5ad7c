"""The retention of versions: which ones stay readable, tags, consumers, expiry, and the removal of orphans."""

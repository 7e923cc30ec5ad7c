"""Reading one version: scans, rows of keys, and what an eventual log shows beyond it."""

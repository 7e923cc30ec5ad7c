"""The doctor's checks: history, files, keys, leftovers (FORMAT.md section 12). They only read, with bounded memory."""

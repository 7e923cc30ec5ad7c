"""Frozen values only: schema, options, row kinds, files, snapshots. No I/O, no clock."""

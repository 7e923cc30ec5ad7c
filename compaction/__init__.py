"""Compaction keeps a table's buckets few files deep. `choice` decides (pure), `merge` does, `local` commits.

A commit of a compaction changes no row: it is ``dataChange = false`` in Delta's log and leaves nothing in ours.
"""

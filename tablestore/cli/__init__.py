"""The command line: `main` is what ``tablestore`` runs.

    app        the commands and their order; how errors end a command
    arguments  options that several commands share          opening   from them to a store or a table
    output     lines, tables, JSON, errors                  text      rows as lines (imports Arrow and polars)
    start      serve, demo                                  catalog   databases, tables, create, drop
    describe   describe, snapshots                          rows      scan, get, write
    follow     follow                                       care      doctor, compact
    ingest     ingest                                       alter     alter
    show       show                                         partitions  list, drop, expire
    files      rows for write (imports Arrow and polars)
    life       tags, tag, rollback, consumers, maintain, expire, orphans
    compactor  compactor

Nothing here but `text` and `files` imports Arrow, polars, Spark or SQL when it is imported: ``--help`` answers at once.
"""

from tablestore.cli.app import app, main

__all__ = ["app", "main"]

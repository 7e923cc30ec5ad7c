"""The command line: ``tablestore`` runs `main`.

    app        the commands and their order; how errors end a command
    arguments  options that several commands share          opening   opens a store or a table by these options
    output     prints lines, tables, JSON, errors           text      formats rows as lines (imports Arrow and polars)
    start      serve, demo                                  catalog   databases, tables, views, create, rename, drop
    describe   describe, snapshots                          rows      scan, get, write
    follow     follow                                       care      doctor, compact
    ingest     ingest                                       refresh   refresh
    alter      alter                                        show      show
    partitions  list, drop, expire
    sql        sql                                      prompt   its prompt: history, completion, commands
    settings   parses NAME=VALUE
    files      reads rows for write (imports Arrow and polars)
    questions  what commands ask before they remove something
    life       tags, tag, rollback, consumers, maintain, expire, orphans
    compactor  compactor                                    spark     spark-archive, spark-settings
    report     prints or logs what a compactor does         secrets   secrets from variables and from files
    settings_page  writes SETTINGS.md                       signals   ends compactor and follow in good order

Only `text` and `files` import Arrow, polars, Spark or SQL at their import, so that ``--help`` answers at once.
"""

from tablestore.cli.app import app, main

__all__ = ["app", "main"]

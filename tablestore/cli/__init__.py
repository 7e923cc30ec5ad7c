"""The command line: ``tablestore`` runs `main`.

    app        the commands and their order; how errors end a command
    arguments  options that several commands share          opening   opens a store or a table by these options
    output     prints lines, tables, JSON, errors           text      formats rows as lines (imports Arrow and polars)
    start      serve, demo                                  catalog   databases, tables, views, create, rename, drop
    describe   describe, snapshots                          rows      scan, get, write
    follow     follow                                       care      doctor, compact
    load       load
    ingest     ingest                                       refresh   refresh
    alter      alter                                        show      show
    partitions  list, drop, expire
    sql        sql                                      prompt   its prompt: history, completion, commands
    results    prints results of sql                        layout    lays rows out for people
    pager      shows in a pager what the screen is too small for
    progress   shows that a long command works
    completing  completes names for the shell
    settings   parses NAME=VALUE
    export     writes rows of scan to a file (imports Arrow and polars)
    files      opens the files of write and load (imports Arrow and polars)
    questions  what commands ask before they remove something
    life       tags, tag, rollback, consumers, maintain, expire, orphans
    compactor  compactor                                    spark     spark-archive, spark-settings
    report     prints or logs what a compactor does         secrets   secrets from variables and from files
    settings_page  writes SETTINGS.md                       signals   ends compactor and follow in good order

Only `text`, `files` and `export` import Arrow, polars, Spark or SQL at their import, so that ``--help`` is fast.
"""

from tablestore.cli.app import app, main

__all__ = ["app", "main"]

"""Stores a table as files: a Delta table whose files are bucketed and sorted by key. FORMAT.md is normative.

The package knows nothing of Spark, Kafka, HTTP or SQL databases. `filestore.table.FileStore` is its entry point. The
packages inside, each above those that it uses:

    life       expiry, tags, consumers, rollback        checks     the doctor's checks of stored bytes
    operations folds, alterations, change data of overwrites and rollbacks
    reading    scans, point reads, pending runs         writing    writes and folds rows into one slot
    changelog  change data for Delta's feed             lookup     finds the rows of keys
    sorting    sorts more rows than fit into memory     files      Parquet files: writing, opening, statistics
    cache      columns that are kept for look-ups       commit     proposals, conflicts, the commit protocol
    retention  which versions and files are needed      delta      the log's entries, a version's state
    merge      merge engines: the rows of a key become one
    parquet    Parquet files as bytes: parts, checksums
    rows       batches in memory: keys, buckets         model      values: definitions, options, files
"""

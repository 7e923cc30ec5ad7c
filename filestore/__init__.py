"""The table as files: plain Delta, bucketed and sorted. FORMAT.md is normative.

It knows nothing of Spark, Kafka, HTTP or SQL databases. `filestore.table.FileStore` is the door. What the packages are
for, each above what it uses:

    checks     the doctor's, on stored bytes            life       which versions stay, tags, expiry, rollback
    operations folds, alterations, change data of overwrites and rollbacks
    reading    scans, point reads, pending runs         writing    what a write or a fold does to a slot
    changelog  change data for Delta's feed             lookup     keys to rows
    sorting    more rows than memory holds              files      Parquet: written, opened, known without reading
    cache      columns kept for look-ups to come        commit     proposals, conflicts, the commit protocol
    delta      the log's entries and a version's state  merge      what becomes of a key's rows: engines
    rows       batches in memory: keys, buckets         model      values: definitions, options, files
"""

"""The table as files: plain Delta, bucketed and sorted. FORMAT.md is normative.

It knows nothing of Spark, Kafka, HTTP or SQL databases. `filestore.table.FileStore` is the door; `model` holds values,
`delta` the log and the one commit loop, `fold` what a write does to a bucket, `changelog` what it writes down of it.
"""

"""DataFrames of managed tables, read and written in batches.

columns        a frame's columns in the table's types
writing        a write as a job: each bucket is a task
views          refreshes of maintained joins as jobs
view_rows      the rows of a refresh of any other view, as DataFrames
view_engine    runs the queries of these views
view_session   the sessions in which they run, with the settings that a view keeps
comparing      null-safe comparisons of values
compaction     compactions, folds and the change data of overwrites as jobs
overlays       versions with pending runs, and what the log shows beyond a version, as native scans
reading        ``read.format("tablestore")``
sink           ``write.format("tablestore")`` and ``writeStream``: staged runs, one commit
system_tables  ``read.format("tablestore").load("shop.orders$files")``
"""

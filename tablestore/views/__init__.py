"""Maintained views: tables whose rows are the result of a query, and which refreshes keep so (docs/views.md).

join_query     the query of a view that joins two tables, as a value and as SQL. Pure
output_table   the columns, key and options of a view's table. Pure
refresh_plan   what a refresh has to read, from the versions of the view and of its inputs. Pure
left_rows      the changes of a table between two versions, and its rows by bucket
right_rows     the rows of the right table, by key
joined         the result rows of some rows of the left table. Pure
bucket_work    the rows of one bucket that a refresh changes: a task
refresh        one refresh: its tasks, as a write of the view's table
holds          keeps what a view has read from expiring
statement      the query of CREATE MATERIALIZED VIEW. Pure
examination    the doctor's findings about a view. Pure
maintained     `MaintainedJoin`: refreshes, and says how far a view is behind
creation       creates the table of a view, or opens it
"""

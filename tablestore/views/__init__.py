"""Maintained views: tables whose rows are the result of a query, and which refreshes keep so (docs/views.md).

Joins of two tables by a primary key are refreshed without Spark, bucket by bucket, and so are look-ups of new events;
Spark refreshes all other views.

join_query     the query of a view that joins two tables, as a value and as SQL. Pure
join_sides     which of two tables drives their join, and which kinds are possible. Pure
output_table   the columns, key and options of a view's table. Pure
view           `View`: what all views have in common: a refresh is one commit, which names its versions
refresh_plan   what a refresh has to read, from the versions of the view and of its inputs. Pure
refresh_order  the order of views that read other views. Pure
spark_syntax   parses queries of Spark, pipes among them. Pure
view_query     the query of a view that Spark refreshes, as text and its clauses. Pure
view_errors    errors about the tables of a view, with its name
view_settings  the settings of Spark with which such a query runs. Pure
select_text    a SELECT in the text of a query, and the positions of its clauses. Pure
nodes          the tree of such a query: scans, SELECTs, UNION ALL. Pure
scope          what names of columns mean in a SELECT. Pure
functions      functions by which a row is not that of one row, or depends on their order. Pure
nulls          whether an expression may be null. Pure
row_key        the columns by which rows of a node are known. Pure
with_clause    writes a query without WITH. Pure
equal_columns  the columns of inputs that have to be equal. Pure
block_reader   reads the tree of a query. Pure
view_plan      whether it is refreshed from what changed or as a whole, and by which key. Pure
refresh_script  what a refresh computes, as queries over versions of tables. Pure
view_creation  the table of such a view
maintained_query  `MaintainedQuery`: such a view; its rows are computed by an engine, which is Spark
left_rows      the changed keys of a table, and its rows by bucket
joined         the result rows of some rows of the left table. Pure
bucket_work    the rows of one bucket that a refresh changes: a task
refresh        one refresh: its tasks, as a write of the view's table
event_commits  the files with the events that commits have inserted. Pure
event_work     looks some events up in another table: a task
event_join     `EventJoin`: adds new events to a view, each looked up in another table
event_check    compares the rows of such a view with its events, for the doctor
fingerprint    the number of rows and a sum of their hashes, for comparisons in any order. Pure
holds          keeps what a view has read from expiring
statement      the query of CREATE MATERIALIZED VIEW. Pure
examination    the doctor's findings about a view. Pure
maintained     `MaintainedJoin`: refreshes, and says how far a view is behind
creation       creates the table of a view, or opens it
upkeep         refreshes all views of a catalog, round after round
"""

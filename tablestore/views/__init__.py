"""Maintained views: tables whose rows are the result of a query, and which refreshes keep so (docs/views.md).

A `View` is refreshed by the method of its kind: a join of two tables by a primary key, bucket by bucket; look-ups of
new events; or any query, in this process or by Spark.

join_query     the query of a view that joins two tables, as a value and as SQL. Pure
join_sides     which of two tables drives their join, and which kinds are possible. Pure
output_table   the columns, key and options of a view's table. Pure
view           `View`: a refresh is one commit, which names its versions
refresh_method  `RefreshMethod`: how the rows of a view are kept equal to its query
tasks          where the tasks of a refresh run
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
view_creation  the tables of views
query_work     what a refresh by a query computes
local_engine   computes it in this process, and `local_rows`, `local_comparison`
engines        `Engines`: this process where it knows how and has the room, else Spark
query_method   `QueryMethod`: rows by the query's own text
left_rows      the changed keys of a table, and its rows by bucket
joined         the result rows of some rows of the left table. Pure
bucket_work    the rows of one bucket that a refresh changes: a task
join_work      the tasks of a refresh, as a write of the view's table
join_method    `JoinMethod`: the join of two tables by a primary key
event_commits  the files with the events that commits have inserted. Pure
event_work     looks some events up in another table: a task
event_method   `EventMethod`: adds new events to a view, each looked up in another table
event_check    compares the rows of such a view with its events, for the doctor
fingerprint    the number of rows and a sum of their hashes, for comparisons in any order. Pure
holds          keeps what a view has read from expiring
statement      the query of CREATE MATERIALIZED VIEW. Pure
examination    the doctor's findings about a view. Pure
creation       creates the table of a view
opening        opens, lists, drops and compares views
refreshing     refreshes views, each behind those that it reads
upkeep         refreshes all views of a catalog, round after round
"""

"""Joins of two tables by a primary key, which are refreshed bucket by bucket (decision 109).

join_query     the join as a value and as SQL. Pure
join_sides     which of two tables drives their join, and which kinds are possible. Pure
join_table     the columns, key and options of the view's table. Pure
statement      reads such a join from CREATE MATERIALIZED VIEW. Pure
joined         the result rows of some rows of the left table. Pure
changed_keys   the changed keys of a table
bucket_work    the rows of one bucket that a refresh changes: a task
join_work      the tasks of a refresh, as a write of the view's table
join_method    `JoinMethod`: the refreshes of such a view
"""

"""Decides how a view of any query is refreshed (decision 151). Pure.

nodes          the tree of a query: scans, SELECTs, UNION ALL
scope          what names of columns mean in a SELECT
functions      functions by which a row is not that of one row, or depends on their order
nulls          whether an expression may be null
exactness      whether a query has the same values each time, to the last bit
row_key        the columns by which rows of a node are known
with_clause    writes a query without WITH
select_clauses  the clauses of a SELECT, and the expressions in them
subqueries     reads the subqueries in expressions
equal_columns  the columns of inputs that have to be equal
block_reader   reads the tree of a query
join_query     `JoinQuery`: a join by a primary key, as a value and as SQL
two_tables     finds that a query is such a join
join_table     the table of a view that is one
view_plan      whether it is refreshed from what changed or as a whole, and by which key
script         the relations that a refresh reads and makes
refresh_script  what a refresh computes, as queries over versions of tables
"""

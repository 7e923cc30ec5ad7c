"""The text of a view's query: how it is read, and what names in it mean. Pure.

spark_syntax   parses queries of Spark, pipes among them
clauses        parts of a parsed query
select_text    a SELECT in the text of a query, and the positions of its clauses
place          completes names of tables
view_query     `ViewQuery`: the query, as text and its clauses
view_settings  the settings of Spark with which it runs
"""

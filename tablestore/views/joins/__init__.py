"""Computes joins of two tables by a primary key bucket by bucket, in any memory (decisions 109 and 154).

joined         the result rows of some rows of the left table. Pure
changed_keys   the changed keys of a table
bucket_work    the rows of one bucket that a refresh changes: a task
join_work      the tasks of a refresh, as a write of the view's table
"""

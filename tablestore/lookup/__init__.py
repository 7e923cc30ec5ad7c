"""Look-up joins: rows of a stream or a batch, each with the rows of a table that have its key (docs/lookup-joins.md).

request        what a join asks for, checked against the columns of both sides. Pure
matching       which rows have equal keys, and the result that they make. Pure
timeline       the versions of a table by the times of their commits, and which one a row meets
version_rows   the rows of one version that have some keys
kept_rows      all rows of a small table in memory, moved from version to version by their changes
lookups        `Lookups`: the look-ups in one table, with what they keep for later ones
rows           a join of rows that a program has
"""

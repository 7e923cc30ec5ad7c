"""Queries of Spark that this process computes itself, by DuckDB, with the values that Spark has.

`programs.translated` reads the text of queries, whose tokens `calls` checks, and writes them anew for DuckDB if each
part is known to mean the same there: names, types, operators, functions. Everything else is refused
(`refusal.NotLocalError`), and is for Spark. `database.Database` runs what it writes, in bounded memory.
"""

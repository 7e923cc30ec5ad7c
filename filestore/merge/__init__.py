"""Merge engines: they merge the rows of each key into one row. Each engine has a module, on Arrow and polars."""

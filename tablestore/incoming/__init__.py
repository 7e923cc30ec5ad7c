"""Converts the arguments of users, above all rows, to Arrow columns of a table's types.

conform    converts rows to an Arrow table of the table's schema: the entry point
given      converts rows of any supported kind to Arrow
fitting    casts columns to the table's types; refuses a cast that changes a value
layouts    converts Arrow's encodings and list layouts to plain arrays
moments    converts times to UTC; a time without a zone is UTC
"""

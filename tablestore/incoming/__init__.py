"""Converts the arguments of users, above all rows, to Arrow columns of a table's types.

conform    converts rows to an Arrow table of the table's schema: the entry point
given      converts rows of any supported kind to Arrow
fitting    casts columns to the table's types; refuses a cast that changes a value
layouts    converts Arrow's encodings and list layouts to plain arrays
moments    converts times to UTC; an object needs its time zone, a text without one is in UTC
zones      refuses a moment without a zone for a TIMESTAMP, and one with a zone for a TIMESTAMP_NTZ
"""

"""A managed table as one value: its files and its log. The catalog, which creates and names tables, is built on it.

identity    which table it is, and its location
opened      `OpenedTable`: the table as this process has opened it
own_log     whether the log is the one for which the table's offsets are valid
"""

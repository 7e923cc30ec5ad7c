"""A managed table as one value: its files and its log. The catalog, which creates and names tables, uses it.

identity    `TableIdentity`: names, id and location of a table
opened      `OpenedTable`: the table as this process has opened it
log_change  checks and changes the log together with the commit of its options
new_log     begins a new log at the newest version, after the table's was lost
own_log     checks that a log is the one for which the table's offsets are valid
"""

"""What users pass in, rows above all, as Arrow columns of a table's types.

conform    rows as an Arrow table of the table's schema: the door
given      rows in whatever form users have them, as Arrow
fitting    columns cast to the table's types, without a value that changes
layouts    Arrow's layouts of the same values, taken apart
moments    times: one without a zone is UTC
"""

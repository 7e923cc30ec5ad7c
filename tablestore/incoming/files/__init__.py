"""Files of rows: CSV, JSON and Parquet, on a local disk.

`kinds` are the kinds of files. `row_file` opens one and reads its rows. `columns` finds out which columns files have:
`facts` is what is known of a column's values and decides its type, `texts` and `documents` find these facts in CSV and
JSON.
"""

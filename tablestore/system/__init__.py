"""System tables: metadata and changes of a table, as tables (tablestore/SYSTEM_TABLES.md).

names      their names: DB.TABLE$snapshots               metadata   those that are read from the Delta log
changes    audit_log and changes: rows, in parts         scan       `SystemScan` and `system_scan`
           that tasks can read                           detail     a version's metadata as plain values
"""

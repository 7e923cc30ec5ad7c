"""System tables: what is known of a table, and what changed in it, as tables (tablestore/SYSTEM_TABLES.md).

names      how they are called: DB.TABLE$snapshots       metadata   those that are told from the Delta log
changes    audit_log and changes: rows, planned so       scan       `SystemScan`: the door
           that tasks can read them
"""

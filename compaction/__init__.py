"""Compaction: chooses slots that need work, merges their files, and runs as a service for the tables of a catalog.

    choice     which files of a slot to merge (pure)  merge        merges the files of a slot
    compact    plan, merge and commit                 rebase       carries a merge over to a newer version
    tombstones merges and forgets deleted keys        log_trim     retention of an embedded log
    duties     what a compactor does for a table      compactor    all tables of a catalog, each under its lease
    lease      held by a heartbeat                    schedule     when (APScheduler)
    on_request fold, compact and clean at once        in_writer    compaction beside a writer's commits
    duty_metrics  what is measured of a compactor     maintenance  tags, and versions that expire

A compaction does not change rows: its commit has ``dataChange = false`` in the Delta log and adds nothing to the
table's log. Folds are in `filestore.operations.fold`, since rollbacks and changes of the definition fold, too.
"""

"""Compaction keeps a table's buckets few files deep: which files, the merge, and who does it when.

    choice     what to do with a slot (pure)          merge        a slot's files become new ones
    local      plan, merge, commit                    rebase       what to do when writers were faster
    folding    pending runs become files              maintenance  tags, and versions that expire
    duties     what a compactor does for a table      compactor    all tables of a catalog, each under its lease
    leftovers  files that nobody names                in_writer    beside a writer's commits
    lease      held by a heartbeat                    schedule     when (APScheduler)
    threads    tasks in one process                   tombstones   runs of deleted keys
    refold     an older version's runs, for a rollback
    replacing  which rows an overwrite changes
    rewrite    all rows in files of a new schema      log_trim     retention of an embedded log
    duty_metrics  what is measured of a compactor

A commit of a compaction changes no row: it is ``dataChange = false`` in Delta's log and leaves nothing in ours. A fold
changes none for our readers; for all others it is the commit that does.
"""

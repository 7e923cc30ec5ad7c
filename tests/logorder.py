"""Checks an eventual log: computes the rows of a reader that applies the records in the log's order."""

from __future__ import annotations

from typing import Any

from filestore.ambient import system_ambient
from filestore.files.live_rows import read_file
from log.table.store import LogBatch, LogControl
from log.table.systems import open_log
from tablestore import Table
from tests.tables import in_order

__all__ = ["applied", "events"]

Row = dict[str, Any]


def events(table: Table) -> list[LogBatch | LogControl]:
    """Everything in the table's log, each bucket in its order."""
    config = table.opened.log_config()
    assert config is not None
    found: list[LogBatch | LogControl] = []
    with open_log(config, system_ambient()) as log:
        ends = log.end_offsets()
        with log.tail(dict.fromkeys(ends, 0)) as tail:
            while tail.offsets != ends:
                found += tail.poll(5.0)
    return found


def applied(table: Table) -> list[Row]:
    """The rows that the log leads to. A control record that a snapshot names is that version's rows in its bucket."""
    named = {t.id: s.version for s in table.snapshots() for t in s.transactions}
    key = table.definition.primary_key
    state: dict[int, dict[tuple[Any, ...], Row]] = {}
    for event in events(table):
        bucket = state.setdefault(event.bucket, {})
        if isinstance(event, LogControl):
            if (version := named.get(event.transaction_id)) is not None:
                bucket.clear()
                for row in rows_of_bucket(table, version, event.bucket):
                    bucket[tuple(row[name] for name in key)] = row
            continue
        for row in event.rows.to_pylist():
            name = tuple(row[column] for column in key)
            if row.pop("_kind") in ("+I", "+U"):
                bucket[name] = row
            else:
                bucket.pop(name, None)
    return in_order(row for bucket in state.values() for row in bucket.values())


def rows_of_bucket(table: Table, version: int, bucket: int) -> list[Row]:
    state = table.filestore.state(version)
    files = table.filestore.table_files(state)
    found = [read_file(files, f) for f in state.files if f.slot.bucket == bucket]
    return [row for parts in found for part in parts for row in part.to_pylist()]

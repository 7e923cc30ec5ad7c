"""The death of the Python process that answers for a JVM, in the middle of a write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tablestore import Table
from tests.servers.spark_programs import has_ended, python_processes
from tests.waiting import until

__all__ = ["FORGET", "killed_within_a_write"]

FORGET = ("SELECT reflect('java.lang.System', 'gc')", "SELECT reflect('java.lang.System', 'runFinalization')")
"""Statements with which a JVM collects what it had of a process that died. The next process must not suffer from it."""


@contextmanager
def killed_within_a_write(table: Table, jvm: int) -> Iterator[None]:
    """The block begins a write, which cannot end, since the log is locked. When its files are there, the process dies.

    REQUIRES: the table has one bucket, and the embedded log.
    """
    before = _data_files(table)
    [process] = python_processes(jvm)
    [log] = Path(table.location, "_log").glob("bucket-*.sqlite")
    with closing(sqlite3.connect(log, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        until(lambda: _data_files(table) > before, what="a file of the write")
        process.kill()
        until(lambda: has_ended(process), what="the death of the Python process")
        db.execute("ROLLBACK")


def _data_files(table: Table) -> set[Path]:
    return set(Path(table.location).rglob("*.parquet"))

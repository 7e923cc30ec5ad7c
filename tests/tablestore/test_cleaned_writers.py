"""Orphans are removed while an operation is running, however young they are: no version names a file that is gone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from filestore.ambient import system_ambient
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.storage.local import LocalStorage
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.depth import Depth
from tests.faults import Call, FaultyStorage
from tests.folders import memory_folder
from tests.tables import assert_healthy
from tests.tablestore.test_fault_matrix import OPERATIONS, Operation, made
from tests.warehouses import assert_same_rows, rows

LATER = 10**15
"""A time after every file was written."""

CASES = [(name, log) for name, how in OPERATIONS.items() for log in how.logs]


class CleanUp:
    """A hook: right before one of an operation's calls another process removes all files that no version names."""

    def __init__(self, location: Path, template: Table, number: int) -> None:
        self._location, self._template, self._number = location, template, number
        self._running = False
        self.seen = 0

    def __call__(self, call: Call) -> None:
        if call.done or self._running:
            return
        self.seen += 1
        if self.seen == self._number:
            self._running = True
            store = opened(self._template, self._location).filestore
            remove_orphans(store, find_orphans(store, LATER, lambda: None))
            self._running = False


def opened(template: Table, location: Path, hook: CleanUp | None = None) -> Table:
    """The copy of a table, as a process has it that knows nothing yet."""
    storage = LocalStorage() if hook is None else FaultyStorage(LocalStorage(), hook)
    identity = replace(template.opened.identity, location=str(location))
    return Table(OpenedTable(identity, storage, system_ambient()))


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "log"), CASES)
@pytest.mark.timeout(1800)
def test_orphans_are_removed_at_any_moment_of_an_operation(name: str, log: str, depth: Depth) -> None:
    operation = OPERATIONS[name]
    with made(operation, log) as template, memory_folder() as folder:
        calls, expected = undisturbed(operation, template, folder)
        for number in depth.sample(range(1, calls + 1), 6, deep=2):
            location = folder / str(number)
            shutil.copytree(template.location, location)
            operation.act(opened(template, location, CleanUp(location, template, number)))
            table = opened(template, location)
            assert_healthy(table.filestore)
            assert rows(table) == expected
            assert_same_rows(table, log=operation.log_is_whole)
            shutil.rmtree(location)


def undisturbed(operation: Operation, template: Table, folder: Path) -> tuple[int, list[dict[str, object]]]:
    """Returns how many calls the operation makes, and the rows after it."""
    location = folder / "undisturbed"
    shutil.copytree(template.location, location)
    count = CleanUp(location, template, 0)
    operation.act(opened(template, location, count))
    return count.seen, rows(opened(template, location))

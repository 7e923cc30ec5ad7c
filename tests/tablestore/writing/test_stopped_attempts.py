"""A write stops before its commit, as often as it tries, while others commit: for every engine and log.

Whatever its attempts found, its effect is that of the last write, and the log and the change data agree with it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.model.log_mode import LogMode
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tests.changes import assert_exact, by_deltalake
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.tablestore.test_log_modes import CHANGES, KEY, SCHEMA, given_rows, replayed, reported, stored
from tests.tablestore.test_log_modes import ENGINES as MERGING
from tests.warehouses import assert_whole, rows, warehouse

Options = dict[str, str]
Changes = list[tuple[Any, ...]]

ENGINES: dict[str, Options] = {
    **MERGING,
    "nothing remembered": {"sequence.field": "value", "sequence.tombstone-retention": "0 s"},
    "sequence group": {"merge-engine": "partial-update", "fields.value.sequence-group": "note"},
}
LOGS: dict[str, Options] = {
    "upserts": {},
    "images": {"changelog-producer": "lookup"},
    "upserts beside images": {"changelog-producer": "lookup", "log.changelog-mode": "upsert"},
    "input": {"changelog-producer": "input"},
    "tombstones": {"changelog-producer": "lookup", "log.changelog-mode": "upsert", "log.delete-format": "tombstone"},
    "eventual": {"log.consistency": "eventual"},
    "eventual beside images": {"log.consistency": "eventual", "changelog-producer": "lookup"},
    "no log": {"log.system": "none", "changelog-producer": "lookup"},
}
STEPS = CHANGES | st.just("compact")


def do(table: Table, step: Changes | str) -> None:
    if step == "compact":
        table.compact(full=True)
        return
    takes = table.definition.options["merge-engine"] != "first-row"
    table.write(given_rows(step, kinds=takes))


def stopped(table: Table, waiting: list[Changes | str], other: Table) -> Table:
    """Opens the table for a writer; before each of its commits one of the waiting steps is taken, and removed."""
    storage = FaultyStorage(LocalStorage())

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            do(other, waiting.pop(0))

    storage.hook = others_first
    return again(table, storage=storage)


def make(store: Store, name: str, options: Options) -> Table:
    given = options | {"bucket": "1"}
    return store.create_table(f"shop.{name}", SCHEMA, primary_key=KEY, partition_by=["part"], options=given)


def assert_led_to(table: Table) -> None:
    """Asserts that the log leads to the rows; complete changes do so from each version to the next."""
    assert_whole(table)
    definition = table.definition
    if definition.options["log.system"] != "none" and definition.log_mode is LogMode.ALL:
        for version in range(1, table.snapshots()[0].version + 1):
            if definition.logs_images:
                changes = reported(table, version - 1, version)
                assert replayed(stored(table, version - 1), changes) == stored(table, version)
    if definition.changelog_producer.images:
        assert_exact(table.filestore, by_deltalake(table.filestore))


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.sampled_from(list(ENGINES)),
    st.sampled_from(list(LOGS)),
    st.lists(CHANGES, max_size=2),
    CHANGES,
    st.lists(STEPS, min_size=1, max_size=3),
)
def test_a_stopped_write_counts_as_the_last(
    engine: str, log: str, before: list[Changes], mine: Changes, others: list[Changes | str]
) -> None:
    with warehouse() as store:
        options = ENGINES[engine] | LOGS[log]
        table, twin = make(store, "t", options), make(store, "twin", options)
        for step in before:
            do(table, step)
        waiting = list(others)
        do(stopped(table, waiting, store.table("shop.t")), mine)
        for step in [*before, *others[: len(others) - len(waiting)], mine]:
            do(twin, step)
        assert rows(table) == rows(twin)
        assert_led_to(table)


@pytest.mark.slow
def test_a_delete_of_a_row_that_was_written_meanwhile(store: Store) -> None:
    """The first attempt finds no row and logs no image of it; the log must delete the other writer's row."""
    for number, log in enumerate(LOGS.values()):
        table = make(store, f"t{number}", log)
        do(stopped(table, [[("a", 1, 1, "x", "+I")]], store.table(f"shop.t{number}")), [("a", 1, 1, None, "-D")])
        assert rows(table) == []
        assert_led_to(table)

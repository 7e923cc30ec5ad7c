"""Processes that refresh a view at the same time, and die: each of its versions is the result that it names."""

from __future__ import annotations

import itertools
import random
import time
from contextlib import ExitStack

import pytest

from tablestore import Store
from tablestore.spark import SparkStore
from tablestore.views.refresh_plan import read_versions
from tablestore.views.view import View
from tests.cli.programs import Program
from tests.spark.batch.view_cases import (
    CASES,
    Case,
    assert_no_empty_update,
    by_spark,
    changed,
    created,
    keyed_rows,
    values,
)
from tests.tables import assert_healthy
from tests.waiting import until

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.timeout(1800)]

CHANGES = 16
KEEPS_ALL = {"snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "1000"}


@pytest.mark.parametrize("form", ["groups_of_join", "join_of_three"])
def test_two_processes_refresh_a_view_and_are_killed(lake: SparkStore, store: Store, form: str) -> None:
    case, dice = CASES[form], random.Random(form)
    tables = created(store, case)
    for table in tables:
        table.alter(*(f"SET {name} = {value}" for name, value in KEEPS_ALL.items()))
        changed(table, dice, 30)
    options = {"changelog-producer": "lookup"} | KEEPS_ALL
    view = lake.create_materialized_view("shop.v", case.query, primary_key=case.primary_key, options=options)
    command = ["refresh", "--all", "--follow", "--every", "0.05", "--catalog", store.target]
    with ExitStack() as started:
        running = [started.enter_context(Program(command)) for _ in range(2)]
        running[0].err.until_any("refreshing all views")  # or the lines say what is wrong
        until(lambda: view.table.filestore.state().version > 0, what="a first refresh")
        for number in range(CHANGES):
            before = view.table.filestore.state().version
            changed(dice.choice(tables), dice)
            if number % 2:
                until(lambda at=before: view.table.filestore.state().version > at, 600, "a refresh")  # type: ignore[misc]
            time.sleep(dice.random())  # so that the next change, and a death, are anywhere in a refresh
            if number in (CHANGES // 3, CHANGES // 2):
                running[number % 2].process.kill()
                running[number % 2] = started.enter_context(Program(command))
        done = "the refresh of the last change"
        until(lambda: all(lag.behind == 0 for lag in view.lag().values()), seconds=600, what=done)
        for program in running:
            program.interrupt()
        assert [program.wait() for program in running] == [0, 0]
    assert_each_version(lake, store, view, case)


def assert_each_version(lake: SparkStore, store: Store, view: View, case: Case) -> None:
    """Each version is the query's result for the versions that it names, and its change data what differs."""
    files = view.table.filestore
    ids = [store.table(name).filestore.state().table_id for name in case.tables]
    last = files.state().version
    assert last > CHANGES // 3, "it was refreshed in between"
    seen = []
    for version in range(1, last + 1):
        read = read_versions(files.state(version), *ids)
        assert read is not None
        seen.append(read)
        expected = by_spark(lake, case, dict(zip(case.tables, read, strict=True)))
        assert repr(values(lake.read("shop.v", version=version).collect())) == repr(expected), (version, read)
        assert_no_empty_update(view, keyed_rows(view, version - 1), version)
    assert len(set(seen)) == len(seen), "no refresh is repeated"
    assert all(all(a <= b for a, b in zip(before, after, strict=True)) for before, after in itertools.pairwise(seen))
    assert lake.examine("shop.v").problems == ()  # a process that was killed may have left files
    assert_healthy(files)

"""Phase-locked races (fault tests 5 and 6): others commit at the very moment when a writer puts its entry.

Whatever they did, the table and the log are as if all had come one after the other: nothing is resurrected or lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.depth import Depth, sampled
from tests.faults import Call
from tests.model.model import SHAPES, Model, Shape, tiny_row_groups

Rows = list[dict[str, Any]]
KEYS = range(6)


def rows(value: str, sequence: int, kind: str = "+U", keys: range = KEYS) -> Rows:
    return [{"id": key, "p": "x", "s": sequence, "v": value, "_kind": kind} for key in keys]


# what a writer does: its rows, and whether it overwrites
OPERATIONS: dict[str, tuple[Rows, bool]] = {
    "update": (rows("update", 5), False),
    "update half": (rows("half", 5, keys=range(0, 6, 2)), False),
    "newer update": (rows("newer", 7), False),
    "late update": (rows("late", 3), False),
    "delete": (rows("", 6, "-D"), False),
    "late delete": (rows("", 2, "-D"), False),
    "overwrite": (rows("over", 1, keys=range(3, 8)), True),
    "truncate": ([], True),
    "new keys": (rows("new", 1, "+I", range(6, 9)), False),
    "delete of no row": (rows("", 6, "-D", range(6, 9)), False),
    "mixed": ([*rows("mixed", 6, keys=range(3)), *rows("", 6, "-D", range(3, 6))], False),
}


def race(folder: Path | str, shape: Shape, mine: str, others: tuple[str, ...]) -> Model:
    """`mine` is prepared first; each of the others commits just before an attempt of it writes its entry."""
    model = Model(folder, shape)
    model.write(rows("first", 4))
    model.write(rows("second", 4, keys=range(2, 5)))
    waiting = list(others)

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            model.storage.hook = lambda _: None
            operation, overwrite = OPERATIONS[waiting.pop(0)]
            kept, model.store = model.store, type(model.store).open(model.storage, model.store.location, model.ambient)
            model.write(operation, overwrite=overwrite)
            model.store = kept
            model.storage.hook = others_first

    prepared = model._prepare(*OPERATIONS[mine])
    model.storage.hook = others_first
    model._committed(prepared, *OPERATIONS[mine])
    assert not waiting
    model.check_history()
    return model


SHORT = "bigint-sequence-lookup"
LONG = [pytest.param(shape, marks=pytest.mark.slow) for shape in ("bigint", "bigint-sequence", "bigint-lookup")]


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHORT, *LONG])
@pytest.mark.parametrize("mine", sampled(OPERATIONS, 11, test=4))
def test_two_writers(folder: Path, shape: str, mine: str, depth: Depth) -> None:
    with tiny_row_groups():
        for number, other in enumerate(depth.sample(OPERATIONS, 7)):
            race(folder / str(number), SHAPES[shape], mine, (other,)).check()


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("mine", sampled(OPERATIONS, 11, test=11))
def test_two_writers_in_s3(mine: str, s3_places: Callable[[], AbstractContextManager[str]], depth: Depth) -> None:
    for other in depth.sample(OPERATIONS, 2):
        with tiny_row_groups(), s3_places() as folder:
            race(folder, SHAPES[SHORT], mine, (other,)).check()


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("shape", sampled([SHORT, "bigint-sequence"], 2, test=2))
@pytest.mark.parametrize("mine", sampled(["update", "late update", "delete", "mixed"], 4, test=2))
def test_three_writers(folder: Path, mine: str, shape: str, depth: Depth) -> None:
    """Found by it: a row that was late against the first of them stayed dead when the second removed that one."""
    others = ["newer update", "delete", "overwrite", "truncate", "update half"]
    with tiny_row_groups():
        for number, pair in enumerate(depth.sample(itertools.product(others, others), 7)):
            race(folder / str(number), SHAPES[shape], mine, pair).check()


@pytest.mark.parametrize("order", [("update", "delete"), ("delete", "update")])
def test_an_update_and_a_delete_of_one_row_do_not_resurrect_it(folder: Path, order: tuple[str, str]) -> None:
    """Iceberg's anomaly: the delete, prepared on the old row, must also find the updated one."""
    first, second = order
    with tiny_row_groups():
        model = race(folder, SHAPES["bigint"], second, (first,))
        assert (model.rows == {}) == (second == "delete")
        model.check()


@pytest.mark.parametrize("shape", ["bigint", "bigint-sequence", "bigint-lookup", "bigint-sequence-lookup"])
def test_a_delete_that_found_no_row_takes_the_one_that_was_written_meanwhile(folder: Path, shape: str) -> None:
    """The log has nothing of the first attempt where it has images: replayed, it must not keep the other's row."""
    with tiny_row_groups():
        model = race(folder, SHAPES[shape], "delete of no row", ("new keys",))
        model.check()
        assert {row["id"] for row in model.rows.values()} == set(KEYS)

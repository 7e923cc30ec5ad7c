"""Fault test 1: random writes, overwrites, deletes, races and crashes at every storage call, against a dict.

After each step the doctor passes, and polars, delta-rs and our reader agree with the dict; delta-spark agrees with each
version that the steps have left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.depth import Depth, sampled
from tests.faults import FailAt
from tests.folders import memory_folder
from tests.machines import run_machine
from tests.model.model import SHAPES, Model, Shape, difference, tiny_row_groups
from tests.model.steps import faults, rows_of
from tests.tables import Clock, in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


class Machine(RuleBasedStateMachine):
    """One table's life. `shape` and `places`, which opens an empty folder for it, are set by a subclass."""

    shape: Shape
    places: Callable[[], AbstractContextManager[Path | str]]
    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(tiny_row_groups())
        self.folder = self.stack.enter_context(type(self).places())

    @initialize()
    def make(self) -> None:
        self.model = Model(self.folder, self.shape)

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        self.model.write(data.draw(rows_of(self.shape), label="rows"))

    @rule(data=st.data())
    def overwrite(self, data: st.DataObject) -> None:
        self.model.write(data.draw(rows_of(self.shape), label="rows"), overwrite=True)

    @rule(data=st.data(), fault=faults(), overwrite=st.booleans())
    def fail(self, data: st.DataObject, fault: FailAt, overwrite: bool) -> None:
        self.model.write_failing(data.draw(rows_of(self.shape), label="rows"), fault, overwrite=overwrite)

    @precondition(lambda self: self.model.pending is None)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.model.begin(data.draw(rows_of(self.shape), label="rows"))

    @precondition(lambda self: self.model.pending is not None)
    @rule()
    def finish(self) -> None:
        self.model.finish()

    @rule()
    def restart(self) -> None:
        self.model.restart()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "model"):
            self.model.check()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.check_history()
        self.stack.close()


def run(
    shape: Shape,
    *,
    examples: int,
    steps: int,
    places: Callable[[], AbstractContextManager[Path | str]] = memory_folder,
) -> None:
    run_machine(Machine, shape.name, examples=examples, steps=steps, shape=shape, places=staticmethod(places))


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 3), ids=list(SHAPES))
def test_any_sequence_of_steps_gives_what_the_dict_has(shape: Shape) -> None:
    run(shape, examples=3, steps=8)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 9, test=9), ids=list(SHAPES))
def test_any_long_sequence_of_steps_gives_what_the_dict_has(shape: Shape, depth: Depth) -> None:
    run(shape, examples=depth.times(5, deep=8), steps=20)


@pytest.mark.deep  # test_life.py has a table's life in S3
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 9, test=9), ids=list(SHAPES))
def test_any_sequence_of_steps_in_s3(
    shape: Shape, s3_places: Callable[[], AbstractContextManager[str]], depth: Depth
) -> None:
    run(shape, examples=depth.times(1, deep=4), steps=depth.times(6, deep=15), places=s3_places)


@pytest.mark.slow
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 9, test=9), ids=list(SHAPES))
def test_delta_spark_agrees_with_every_version(shape: Shape, spark: SparkSession, depth: Depth) -> None:
    kinds = st.sampled_from(["write", "overwrite", "race"])
    steps = st.tuples(kinds, rows_of(shape), rows_of(shape), st.none() | faults())

    @settings(max_examples=depth.times(1, deep=2), phases=(Phase.generate,))
    @given(st.lists(steps, min_size=3, max_size=6))
    def agree(life: list[tuple[str, Rows, Rows, FailAt | None]]) -> None:
        with tiny_row_groups(), memory_folder() as folder:
            model = Model(folder, shape, clock=Clock(time.time_ns() // 1_000_000))  # Delta reads nothing a week old
            for kind, rows, others, fault in life:
                if kind == "race":
                    model.begin(rows)
                    model.write(others)
                    model.finish()
                elif fault is None:
                    model.write(rows, overwrite=kind == "overwrite")
                else:
                    model.write_failing(rows, fault, overwrite=kind == "overwrite")
            for version, held in model.history.items():
                frame = spark.read.format("delta").option("versionAsOf", version).load(model.store.location)
                rows = [row.asDict() for row in frame.select(*model.definition.schema.names).collect()]
                found, expected = in_order(rows), in_order(held.values())
                assert found == expected, difference(found, expected)

    agree()

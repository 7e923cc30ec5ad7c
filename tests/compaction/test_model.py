"""Fault test 4 and 5: compactions among all that a table's model does, at every pace, failing at every storage call."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from compaction.choice import sorted_runs
from compaction.compact import compact_slots, compact_table, plan_compaction
from compaction.merge import CompactionResult
from filestore.delta.state import TableState
from filestore.errors import Conflict, Unavailable
from tests.depth import Depth, sampled
from tests.faults import FailAt, Killed
from tests.folders import memory_folder
from tests.machines import run_machine
from tests.model.model import SHAPES, Shape
from tests.model.steps import faults, rows_of
from tests.model.test_model import Machine
from tests.proposals import commit_compaction
from tests.tables import by_slot, reopen

Begun = tuple[TableState, list[CompactionResult]]


class CompactedMachine(Machine):
    """A table's life with compactions in it. `holds` checks all rows and the doctor after each step."""

    begun: Begun | None = None
    replaced = False

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        store = self.model.store
        snapshot = compact_table(store, full=full)
        if snapshot is not None:
            self.replaced = True
            self.model.history[snapshot.version] = self.model.rows
        if full:
            definition = store.state().definition
            assert all(len(sorted_runs(files, definition)) == 1 for files in by_slot(store.state()))
            assert compact_table(store, full=True) is None

    @rule()
    def look(self) -> None:
        """What a process finds that looks at slots which have changed since its last look is all that there is."""
        store = self.model.store
        assert plan_compaction(store.state()) == plan_compaction(reopen(store).state())

    @precondition(lambda self: self.begun is None)
    @rule(full=st.booleans())
    def begin_compaction(self, full: bool) -> None:
        """Merges; others commit before it does."""
        state = self.model.store.state()
        tasks = plan_compaction(state, full=full)
        self.begun = (state, compact_slots(self.model.store.table_files(state), tasks)) if tasks else None
        self.replaced = False

    @precondition(lambda self: self.begun is not None)
    @rule()
    def finish_compaction(self) -> None:
        """Commits what was begun: it succeeds unless its inputs were replaced as a whole."""
        assert self.begun is not None
        (state, results), self.begun = self.begun, None
        try:
            snapshot = commit_compaction(self.model.store, state, results)
        except Conflict:
            assert self.replaced
            return
        self.replaced = True
        self.model.history[snapshot.version] = self.model.rows

    @rule(data=st.data())
    def overwrite(self, data: st.DataObject) -> None:
        self.replaced = True
        self.model.write(data.draw(rows_of(self.shape), label="rows"), overwrite=True)

    @rule(data=st.data(), fault=faults(), overwrite=st.booleans())
    def fail(self, data: st.DataObject, fault: FailAt, overwrite: bool) -> None:
        self.replaced |= overwrite
        self.model.write_failing(data.draw(rows_of(self.shape), label="rows"), fault, overwrite=overwrite)

    @rule(fault=faults(), full=st.booleans())
    def fail_to_compact(self, fault: FailAt, full: bool) -> None:
        """A compaction that dies at some storage call; whether it took effect or not, no row differs."""
        self.model.storage.hook = fault
        try:
            compact_table(self.model.store, full=full)
        except (Killed, Unavailable):
            assert fault.fired
        self.model.storage.hook = lambda call: None
        before = max(self.model.history)
        self.model.restart()
        for version in range(before + 1, self.model.store.state().version + 1):
            self.replaced = True
            self.model.history[version] = self.model.rows


def run(shape: Shape, *, examples: int, steps: int) -> None:
    run_machine(
        CompactedMachine, shape.name, examples=examples, steps=steps, shape=shape, places=staticmethod(memory_folder)
    )


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 9, test=4), ids=list(SHAPES))
def test_no_compaction_changes_a_row(shape: Shape) -> None:
    run(shape, examples=5, steps=10)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 9, test=9), ids=list(SHAPES))
def test_no_compaction_changes_a_row_in_a_long_life(shape: Shape, depth: Depth) -> None:
    run(shape, examples=depth.times(5, deep=8), steps=25)

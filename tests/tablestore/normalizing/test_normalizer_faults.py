"""Storage fails before or after a call, or the process dies there: the repeated batch returns its changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from filestore.errors import NotFound, Unavailable
from filestore.storage.local import LocalStorage
from tablestore import Normalizer, NormalizerSpec
from tablestore.topics.changes import followed_changes
from tests.depth import Depth, sampled
from tests.faults import FailAt, FaultyStorage, Killed
from tests.tables import assert_healthy, seeded
from tests.tablestore.normalizing.upserts import (
    BUSY,
    Known,
    Upsert,
    after,
    between,
    changed,
    known,
    listed,
    rows_of,
    spec,
)

BATCHES: list[list[Upsert]] = [[("+U", key, number) for key in range(number, number + 40)] for number in range(15)]
NEXT: list[Upsert] = [("-D", 14, None), ("+U", 15, 77), ("+U", 16, 14), ("-D", 99, None), ("+U", 99, 1)]
FAULTS = [(Unavailable("injected"), False), (Unavailable("injected"), True), (Killed(), False), (Killed(), True)]
NAMES = ["error before", "error after", "kill before", "kill after"]


def prepared(folder: Path) -> Known:
    """A state whose next batch needs a compaction, a checkpoint and an expiry behind it."""
    normalizer = Normalizer(spec(folder, **RARE))
    rows: Known = {}
    for number, batch in enumerate(BATCHES):
        changed(normalizer.apply(rows_of(batch), {"0": number}))
        rows = after(rows, batch)
    return rows


RARE = {"checkpoint.interval": "8", "num-sorted-run.compaction-trigger": "1000", "snapshot.num-retained.min": "8"}


def faulty(folder: Path, storage: FaultyStorage) -> NormalizerSpec:
    return NormalizerSpec.of(str(folder), "id BIGINT, v INT", ["id"], options=BUSY, storage=storage)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("error", "after_it"), sampled(FAULTS, 4, test=2, names=2), ids=NAMES)
def test_a_batch_at_every_storage_call(folder: Path, error: BaseException, after_it: bool, depth: Depth) -> None:
    rows = prepared(folder / "prepared")
    wanted, now = between(rows, after(rows, NEXT)), after(rows, NEXT)
    kinds = set()
    for number in depth.counting(71, deep=5):
        state = folder / str(number)
        shutil.copytree(folder / "prepared", state)
        storage = FaultyStorage(LocalStorage())
        storage.hook = fault = FailAt(number, error, after_it)
        try:
            assert changed(Normalizer(faulty(state, storage)).apply(rows_of(NEXT), {"0": 15})) == wanted
        except (Killed, Unavailable):
            assert fault.fired
        normalizer = Normalizer(spec(state))
        kinds.add(normalizer.positions["0"])
        assert known(normalizer) == (now if normalizer.positions == {"0": 15} else rows)
        assert changed(normalizer.apply(rows_of(NEXT), {"0": 15})) == wanted
        assert known(normalizer) == now
        assert changed(normalizer.apply(rows_of([("+U", 0, 5)]), {"0": 16})) == between(now, after(now, [("+U", 0, 5)]))
        assert_healthy(normalizer.spec.opened(seeded()))
        shutil.rmtree(state)
        if not fault.fired:
            break
    assert number > 60, "there are more calls than that"
    assert kinds == {14, 15}


@pytest.mark.parametrize(("error", "after_it"), FAULTS, ids=NAMES)
def test_a_first_batch_at_every_call_of_its_beginning(folder: Path, error: BaseException, after_it: bool) -> None:
    for number in range(1, 9):
        state = folder / str(number)
        storage = FaultyStorage(LocalStorage())
        storage.hook = FailAt(number, error, after_it, path="_delta_log")
        try:
            Normalizer(faulty(state, storage)).apply(rows_of([("+U", 1, 1)]), {"0": 0})
        except (Killed, Unavailable, NotFound):
            assert storage.hook.fired
        normalizer = Normalizer(spec(state))
        assert changed(normalizer.apply(rows_of([("+U", 1, 1)]), {"0": 0})) == [("+I", 1, 1)]
        assert known(normalizer) == {1: 1}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("after_it", [False, True], ids=["kill before", "kill after"])
def test_a_reader_that_dies_at_every_storage_call(folder: Path, after_it: bool) -> None:
    """What it had not asked beyond comes again, whole; what it had does not; nothing is missed."""
    wanted = between({}, after({}, NEXT))
    number, fired, repeated = 0, True, set()
    while fired:
        number += 1
        storage = FaultyStorage(LocalStorage())
        dies = Normalizer(faulty(folder / str(number), storage))
        storage.hook = fault = FailAt(number, Killed(), after_it)
        found: list[list[Upsert]] = []
        ended = False
        try:
            for batch in followed_changes(dies, iter([(rows_of(NEXT), {"t/0": 7})])):
                found.append(listed(batch))
            ended = True
        except Killed:
            assert fault.fired
        fired = fault.fired
        with Normalizer(spec(folder / str(number))) as normalizer:
            rest = [] if normalizer.positions else [(rows_of(NEXT), {"t/0": 7})]
            again = [listed(batch) for batch in followed_changes(normalizer, iter(rest))]
            assert list(followed_changes(normalizer, iter([]))) == []
        assert found in ([], [wanted])
        assert again in ([], [wanted])
        assert found or again, "missed"
        assert not (ended and again), "doubled"
        repeated.add((bool(found), bool(again)))
    assert number > 15, "there are more calls than that"
    assert repeated == {(False, True), (True, True), (True, False)}

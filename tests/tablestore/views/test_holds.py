"""The holds of a view on versions of its inputs, with several processes and a clock of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from filestore.errors import NotFound
from filestore.life.consumers import consumers_of
from filestore.life.expiry import expire
from filestore.table import FileStore
from tablestore.views.holds import Holds
from tests.tables import Clock, create, define, reopen, seeded, write

EXPIRING = {"snapshot_num__retained_min": 1, "snapshot_num__retained_max": 1, "snapshot_time__retained": "0 s"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(folder: Path, clock: Clock) -> FileStore:
    definition = define("id BIGINT NOT NULL", ["id"], consumer_expiration__time="1 h", **EXPIRING)
    made = create(folder / "t", definition, ambient=seeded(0, clock))
    for number in range(4):
        write(made, [{"id": number}])
    return made


def held(store: FileStore) -> list[tuple[str, int]]:
    return [(consumer.id, consumer.version) for consumer in consumers_of(store)]


def test_a_version_is_held_until_the_next_one_is(store: FileStore) -> None:
    holds = Holds("v", [store])
    assert holds.held(store) is None
    holds.hold(store, 2)
    assert held(store) == [("view.v", 2)]
    assert holds.held(store) == 2
    holds.hold(store, 3)
    assert held(store) == [("view.v", 3)]
    holds.release()
    assert held(store) == []
    holds.release()


def test_a_hold_is_kept_alive_as_long_as_it_is_asked_for(store: FileStore, clock: Clock) -> None:
    holds = Holds("v", [store])
    holds.hold(store, 2)
    for _ in range(5):
        clock.ms += 20 * 60_000
        holds.hold(store, 2)
        assert held(store) == [("view.v", 2)]
    clock.ms += 2 * 60 * 60_000
    assert held(store) == []


def test_another_process_may_take_it_over(store: FileStore, clock: Clock) -> None:
    one, other = Holds("v", [store]), Holds("v", [store])
    one.hold(store, 2)
    other.hold(reopen(store), 2)
    clock.ms += 20 * 60_000
    one.hold(store, 2)
    other.hold(reopen(store), 3)
    assert held(store) == [("view.v", 3)]


def test_who_is_too_late_leaves_the_hold_of_another(store: FileStore) -> None:
    Holds("v", [store]).hold(store, 4)
    expire(store)
    slow = Holds("v", [store])
    with pytest.raises(NotFound) as caught:
        slow.hold(store, 1)
    assert caught.value.code == "snapshot-expired"
    assert held(store) == [("view.v", 4)]
    slow.keep([1])
    assert held(store) == [("view.v", 4)]
    with pytest.raises(NotFound):
        Holds("w", [store]).hold(store, 1)
    assert held(store) == [("view.v", 4)]

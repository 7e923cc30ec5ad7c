"""Leases as objects: what they cost, whom they show, and how one that is dead is taken over and removed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest

from filestore.ambient import Ambient, system_ambient
from filestore.errors import Conflict, NotFound, Unavailable
from filestore.layout import LEASES, join
from filestore.leases.beats import Beats
from filestore.leases.objects import ObjectLeases
from tests.faults import Call, FaultyStorage
from tests.simulation.memory import MemoryStorage
from tests.waiting import until

LOCATION = "mem://lake/t"
TIMEOUT_S = 60.0


class Clock:
    """Seconds that pass only in pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.at_pause: Callable[[], None] = lambda: None

    def ambient(self) -> Ambient:
        return replace(system_ambient(), sleep=self.sleep, monotonic_s=lambda: self.now_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.at_pause()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(MemoryStorage(lambda: 1_700_000_000_000))


def leases_of(storage: FaultyStorage, clock: Clock, timeout_s: float = TIMEOUT_S) -> ObjectLeases:
    """The leases as one more process has them."""
    return ObjectLeases(storage, LOCATION, clock.ambient(), lambda: timeout_s)


def path(commit_id: str) -> str:
    return join(LOCATION, f"{LEASES}/{commit_id}")


def operations(storage: FaultyStorage) -> list[str]:
    return [call.operation for call in storage.calls if not call.done]


def dead_lease(storage: FaultyStorage, clock: Clock, commit_id: str = "c") -> None:
    """What a process leaves that is killed."""
    with pytest.raises(KeyError), leases_of(storage, clock).hold(commit_id):
        raise KeyError


@contextmanager
def beating(seconds: float) -> Iterator[None]:
    """Leases that are taken in the block are renewed so often, whatever their time-out is."""
    with patch("filestore.leases.objects.Beats", lambda name, _, beat: Beats(name, seconds, beat)):
        yield


def test_a_short_commit_costs_two_requests(storage: FaultyStorage, clock: Clock) -> None:
    with leases_of(storage, clock).hold("c"):
        assert storage.exists(path("c"))
        storage.calls.clear()
    assert operations(storage) == ["delete"]
    storage.calls.clear()
    with leases_of(storage, clock).hold("d"):
        assert operations(storage) == ["replace_tagged"]
    assert list(storage.walk(LOCATION)) == []


def test_who_holds_it_is_not_dead_for_others_nor_for_itself(storage: FaultyStorage, clock: Clock) -> None:
    mine, other = leases_of(storage, clock), leases_of(storage, clock)
    with mine.hold("c"):
        assert other.dead_among(["c", "never-was"]) == {"never-was"}
        clock.now_s += 59
        assert other.dead_among(["c"]) == set() and other.abandoned() == []
        clock.now_s += 1
        assert other.dead_among(["c"]) == {"c"} and other.abandoned() == ["c"]
        mine.abandoned()
        clock.now_s += TIMEOUT_S
        assert mine.dead_among(["c"]) == set() and mine.abandoned() == []
        other.remove(["c"])
        assert not storage.exists(path("c"))


def test_after_an_error_it_stays_and_is_dead_a_time_out_after_the_first_look(
    storage: FaultyStorage, clock: Clock
) -> None:
    dead_lease(storage, clock)
    other = leases_of(storage, clock)
    clock.now_s += 1e6
    assert other.abandoned() == []
    other.remove(["c"])
    assert storage.exists(path("c")), "nobody knows yet whether its writer lives"
    clock.now_s += TIMEOUT_S
    assert other.abandoned() == ["c"]
    other.remove(["c", "never-was"])
    assert list(storage.walk(LOCATION)) == [] and other.abandoned() == []


def test_it_looks_once_between_two_signs_of_life(storage: FaultyStorage, clock: Clock) -> None:
    other = leases_of(storage, clock)
    for _ in range(100):
        other.abandoned()
        clock.now_s += 1.5
    assert operations(storage) == ["list_tagged"] * 10


@pytest.mark.parametrize("code", ["table-replaced", "no-table"])
def test_a_table_that_was_dropped_keeps_no_lease(storage: FaultyStorage, clock: Clock, code: str) -> None:
    with pytest.raises(NotFound), leases_of(storage, clock).hold("c"):
        raise NotFound("it is gone", code=code)
    assert list(storage.walk(LOCATION)) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_long_commit_renews_it_whatever_fails(storage: FaultyStorage, clock: Clock, after: bool) -> None:
    """A renewal whose reply is lost is repeated with the same bytes, or its own success would look like a loss."""
    failed: list[int] = []

    def fail(call: Call) -> None:
        if call.operation == "replace_tagged" and call.done == after and len(failed) < 3:
            failed.append(json.loads(storage.inner.read(path("c")))["beat"])
            raise Unavailable("injected")

    with beating(0.002), leases_of(storage, clock).hold("c"):
        first = storage.list_tagged(join(LOCATION, LEASES))
        storage.hook = fail
        until(lambda: len(failed) == 3)
        beat = max(failed)
        until(lambda: json.loads(storage.inner.read(path("c")))["beat"] > beat + 2)
        assert storage.list_tagged(join(LOCATION, LEASES)) != first
        assert json.loads(storage.inner.read(path("c")))["since_ms"] == 1_700_000_000_000
    assert list(storage.walk(LOCATION)) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease-")]


def test_who_loses_it_notices_and_leaves_the_new_one_alone(
    storage: FaultyStorage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with beating(0.002), leases_of(storage, clock).hold("c"):
        tag = storage.inner.read_tagged(path("c")).tag
        while True:
            try:
                storage.inner.replace_tagged(path("c"), b"another's", tag)
                break
            except Conflict:
                tag = storage.inner.read_tagged(path("c")).tag
        until(lambda: "takes this writer for dead" in caplog.text)
    assert storage.read(path("c")) == b"another's"


def test_a_dead_one_of_the_same_commit_is_taken_over(storage: FaultyStorage, clock: Clock) -> None:
    """Whoever publishes a commit's transaction again holds its lease: what a dead writer left is in the way."""
    dead_lease(storage, clock)
    began_s = clock.now_s
    with leases_of(storage, clock).hold("c"):
        assert TIMEOUT_S <= clock.now_s - began_s < 2 * TIMEOUT_S
    assert list(storage.walk(LOCATION)) == []


def test_two_holders_of_one_commit_take_turns(storage: FaultyStorage, clock: Clock) -> None:
    mine, other, order = leases_of(storage, clock), leases_of(storage, clock), []

    def release() -> None:
        if not order:
            order.append("released")
            first.__exit__(None, None, None)

    first = mine.hold("c")
    first.__enter__()
    clock.at_pause = release
    with other.hold("c"):
        order.append("taken")
    assert order == ["released", "taken"]


def test_it_is_waited_until_each_is_known(storage: FaultyStorage, clock: Clock) -> None:
    dead_lease(storage, clock, "dead")
    dead_lease(storage, clock, "ended")
    dead_lease(storage, clock, "living")
    beats = iter(range(1000))

    def live() -> None:
        storage.inner.delete(path("ended"))
        if clock.now_s > 10:
            storage.inner.put(path("living"), b"%d" % next(beats))  # type: ignore[attr-defined]

    clock.at_pause = live
    other = leases_of(storage, clock)
    other.wait_until_known()
    assert other.abandoned() == ["dead"]
    assert TIMEOUT_S <= clock.now_s < TIMEOUT_S + 10
    before_s = clock.now_s
    other.wait_until_known()
    assert clock.now_s - before_s < 10, "the living one gives a sign soon, and the dead one is known"


def test_nothing_to_wait_for_takes_one_look(storage: FaultyStorage, clock: Clock) -> None:
    leases_of(storage, clock).wait_until_known()
    assert clock.now_s == 0.0 and operations(storage) == ["list_tagged"]


def test_since_when_somebody_writes(storage: FaultyStorage, clock: Clock) -> None:
    other = leases_of(storage, clock)
    assert other.at_work_since_ms() is None
    dead_lease(storage, clock, "dead")
    assert other.at_work_since_ms() == 1_700_000_000_000, "it is not known yet that it is dead"
    for name, data in (("probe", b"2"), ("foreign", b"{"), ("short", b'{"since_ms": null}')):
        storage.replace_tagged(path(name), data, None)
    assert other.at_work_since_ms() == 1_700_000_000_000
    storage.replace_tagged(path("long"), b'{"since_ms": 1600000000000}', None)
    assert other.at_work_since_ms() == 1_600_000_000_000
    clock.now_s += TIMEOUT_S
    assert "long" in other.abandoned()
    assert other.at_work_since_ms() == 1_600_000_000_000, "its writer may live until its commit is fenced"
    other.remove(["long"])
    assert other.at_work_since_ms() == 1_700_000_000_000

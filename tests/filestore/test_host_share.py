"""The look-ups' caches of several processes divide their limits: never more together, and nobody starves."""

from __future__ import annotations

import logging
import multiprocessing.connection
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.cache.columns import CacheLimits, LookupCache
from filestore.cache.host_share import CacheClaim, HostShare, granted
from tests.processes import PROCESSES
from tests.tables import seeded

WHOLE = CacheClaim(1600, 16_000)
Share = Callable[[], HostShare]


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    """Makes shares of one table, each as another process would have one."""
    made: list[HostShare] = []

    def make() -> HostShare:
        made.append(HostShare("orders", tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def claims(parent: Path) -> list[Path]:
    return list(parent.glob("*/look-ups/orders/*"))


@given(
    limit=st.integers(1, 10_000),
    asked=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20_000)), max_size=40),
)
def test_claims_together_never_exceed_the_limit_and_all_get_their_part(
    limit: int, asked: list[tuple[int, int]]
) -> None:
    held = dict.fromkeys(range(5), 0)
    for process, needed in asked:
        held[process] = granted(limit, [claim for other, claim in held.items() if other != process], needed)
        assert 0 <= sum(held.values()) <= limit
        assert held[process] <= limit // 5
    for _ in range(2):  # whoever has more than his part gives it up at his next use
        for process in held:
            held[process] = granted(limit, [claim for other, claim in held.items() if other != process], limit)
    assert set(held.values()) == {limit // 5}


def test_a_process_alone_has_all(share: Share) -> None:
    alone = share()
    assert alone.limits(WHOLE, 1600, 16_000) == WHOLE
    assert alone.limits(CacheClaim(1600, None), 0, 0).disk is None, "the disk's free space is the limit"


def test_another_ends_its_claim_while_the_claims_are_read(
    share: Share, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its file was gone when it was opened, and the reader cached as if it were alone, in spite of a third one."""
    first, second, third = share(), share(), share()
    for each in (first, second):
        each.limits(WHOLE, 1600, 16_000)
    listed = os.listdir

    def and_one_ends(folder: Path) -> list[str]:
        found = listed(folder)
        second.close()
        return found

    monkeypatch.setattr("filestore.cache.host_share.os.listdir", and_one_ends)
    assert third.limits(WHOLE, 1600, 16_000) == CacheClaim(0, 0), "the first one has not given up anything yet"
    assert caplog.messages == []


def test_it_claims_in_steps(share: Share) -> None:
    alone = share()
    assert alone.limits(WHOLE, 0, 0) == CacheClaim(100, 1000)
    assert alone.limits(WHOLE, 250, 0) == CacheClaim(300, 1000)
    assert alone.limits(WHOLE, 0, 2_500) == CacheClaim(100, 3000), "what is not needed any more is free for others"


def test_those_who_join_get_what_is_free_and_their_part_later(share: Share) -> None:
    first, second = share(), share()
    assert first.limits(WHOLE, 1500, 0).memory == 1600
    assert second.limits(WHOLE, 800, 0).memory == 0, "the first has claimed all"
    assert first.limits(WHOLE, 1500, 0).memory == 800, "and gives half of it up at its next use"
    assert second.limits(WHOLE, 800, 0).memory == 800
    second.close()
    assert first.limits(WHOLE, 1500, 0).memory == 1600


def _hold(parent: str, ready: multiprocessing.connection.Connection) -> None:
    share = HostShare("orders", Path(parent))
    ready.send(share.limits(WHOLE, 400, 0))
    ready.recv()


@pytest.mark.slow
def test_the_claim_of_a_killed_process_ends_with_it(share: Share, tmp_path: Path) -> None:
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=_hold, args=(str(tmp_path), there))
    process.start()
    try:
        assert here.recv() == CacheClaim(500, 1000)
        own = share()
        assert own.limits(WHOLE, 1600, 0).memory == 800
        assert len(claims(tmp_path)) == 2
    finally:
        process.kill()
        process.join()
    assert own.limits(WHOLE, 1500, 0).memory == 1600
    assert len(claims(tmp_path)) == 1, "its file is removed"


def test_a_forked_process_has_a_claim_of_its_own(share: Share, tmp_path: Path) -> None:
    own = share()
    assert own.limits(WHOLE, 100, 0).memory == 200
    child = os.fork()
    if child == 0:
        found = own.limits(WHOLE, 1600, 0).memory
        own.close()
        os._exit(0 if found == 800 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert own.limits(WHOLE, 1500, 0).memory == 1600
    assert len(claims(tmp_path)) == 1


def test_nothing_stays_of_those_who_ended(share: Share, tmp_path: Path) -> None:
    """A folder and a lock stayed for each table that was ever looked up: 10,000 after a few runs of tests."""
    first, second = share(), share()
    for each in (first, second):
        each.limits(WHOLE, 100, 0)
    place = next(tmp_path.glob("*/look-ups"))
    first.close()
    assert [path.name for path in place.iterdir() if path.is_dir()] == ["orders"]
    second.close()
    assert [path for path in place.iterdir() if path.is_dir()] == []
    second.limits(WHOLE, 100, 0)
    assert len(claims(tmp_path)) == 1, "it may begin again"
    for name, left in (("killed", "1-claim"), ("of an older version", "mutex"), ("empty", None)):
        (place / name).mkdir()
        if left is not None:
            (place / name / left).write_bytes(b"100 1000")
    of_another = HostShare("others", tmp_path)
    of_another.limits(WHOLE, 100, 0)
    of_another.close()
    assert sorted(path.name for path in place.iterdir() if path.is_dir()) == ["orders"]


def test_where_no_claim_can_be_written_a_process_is_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").touch()
    with caplog.at_level(logging.WARNING):
        assert HostShare("orders", tmp_path / "taken").limits(WHOLE, 800, 0) == WHOLE
    assert "as if it were alone" in caplog.text


def test_caches_of_several_processes_stay_within_one_limit(share: Share) -> None:
    limits = CacheLimits(1600, 16_000, timedelta(hours=1))
    caches = [LookupCache("orders", limits, seeded(), share=share()) for _ in range(4)]
    for number in range(60):
        for cache in caches:
            cache.decoded(number, 0, lambda: ("a value", 90))
            assert sum(each.memory_bytes for each in caches) <= 1600
    assert all(300 <= cache.memory_bytes <= 400 for cache in caches), "each has its part"
    caches[0].close()
    caches[1].decoded("more", 0, lambda: ("a value", 90))
    assert caches[1].memory_bytes > 400


@pytest.mark.parametrize("disk", [None, 1_000_000])
def test_a_cache_that_divides_its_limits_keeps_columns_on_the_disk(
    share: Share, tmp_path: Path, disk: int | None
) -> None:
    """Without a limit of its own the disk's free space is the bound, and not a part of nothing."""
    limits = CacheLimits(1, disk, timedelta(hours=1))
    rows = pa.record_batch({"id": range(1000)})
    caches = [LookupCache("orders", limits, seeded(), str(tmp_path), share()) for _ in range(2)]
    for cache in caches:
        cache.charge("a file", ["id"], rows.num_rows)
        kept = cache.columns("a file", ["id"], rows.num_rows, lambda names: (rows.schema, [rows.select(names)]))
        assert kept["id"].to_pylist() == list(range(1000))
        assert cache.disk_bytes >= rows.nbytes

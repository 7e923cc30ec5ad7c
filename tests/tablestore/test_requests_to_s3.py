"""How many requests each operation on a table in S3 sends, and which of them it sends side by side.

The bounds are those of the table in docs/operating.md, which operators plan with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tablestore
from filestore.errors import Unavailable
from filestore.storage import retries
from tests.depth import Depth
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Call, Fault, Kind, S3Proxy

pytestmark = pytest.mark.s3

BUCKETS = 4
UPSERTED = 1000
GROUP_ROWS = 4096
PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
WRITES = (Kind.PUT, Kind.PUT_IF)
READS = (Kind.GET, Kind.GET_RANGE, Kind.HEAD, Kind.LIST)


@dataclass
class Shop:
    """A store in S3 with a table `shop.orders`, behind a proxy."""

    proxy: S3Proxy
    warehouse: str
    database: str
    rows: int
    group_rows: int
    rng: np.random.Generator

    def connect(self) -> tablestore.Store:
        reached = {"endpoint": self.proxy.endpoint, "region": self.proxy.region}
        return tablestore.connect(self.warehouse, database=self.database, storage_options=reached)

    def some(self, ids: Any) -> pa.Table:
        """Rows of those ids, so wide that the keys of two row groups are not read by one request."""
        width = max(8, 400_000 // self.group_rows)
        texts = self.rng.bytes(width * len(ids)).hex()
        return pa.table(
            {"id": ids, "text": [texts[start : start + 2 * width] for start in range(0, len(texts), 2 * width)]}
        )

    def upsert(self, table: tablestore.Table) -> None:
        table.write(self.some(self.rng.choice(self.rows, UPSERTED, replace=False)))

    def calls(self, work: Callable[[], object]) -> list[Call]:
        """Returns the requests that the work sends."""
        self.proxy.reset()
        work()
        return self.proxy.calls


@pytest.fixture
def size() -> tuple[int, int]:
    """The rows of the table, and of a row group."""
    return 60_000, GROUP_ROWS


@pytest.fixture
def shop(moto: S3Endpoint, tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    for name, value in moto.environment().items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    with S3Proxy(moto) as proxy:
        warehouse, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path}/catalog.db"
        yield Shop(proxy, warehouse, database, *size, np.random.default_rng(1))


@pytest.fixture
def orders(shop: Shop) -> Iterator[tablestore.Table]:
    with shop.connect() as store:
        store.create_database("shop")
        yield created(store, GROUP_ROWS)


def created(store: tablestore.Store, group_rows: int) -> tablestore.Table:
    options = {"bucket": str(BUCKETS), "row-group.rows": str(group_rows)}
    store.create_table("shop.orders", "id BIGINT, text STRING", primary_key=["id"], options=options)
    return store.table("shop.orders")


def documented() -> dict[str, int]:
    """The table of the page: operations, and how many requests each sends at most."""
    rows = re.findall(r"^\| ([^|]+?) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    return {operation: int(most) for operation, most in rows}


@pytest.mark.parametrize("size", [(60_000, GROUP_ROWS), pytest.param((1_000_000, 131_072), marks=pytest.mark.deep)])
def test_each_operation_sends_at_most_as_many_requests_as_the_page_says(shop: Shop) -> None:
    sent: dict[str, list[Call]] = {}
    with shop.connect() as store:
        store.create_database("shop")
        sent["create a table"] = shop.calls(lambda: created(store, shop.group_rows))
        table = store.table("shop.orders")
        table.write(shop.some(np.arange(shop.rows)))
        sent["upsert of 1,000 rows into 4 buckets, the first after a load"] = shop.calls(lambda: shop.upsert(table))
        sent["upsert of 1,000 rows into 4 buckets"] = shop.calls(lambda: shop.upsert(table))
        keys = [int(key) for key in shop.rng.choice(shop.rows, 10, replace=False)]
        sent["get of 10 keys, the first"] = shop.calls(lambda: table.get(keys))
        sent["get of 10 keys, repeated"] = shop.calls(lambda: table.get(keys))
        sent["the newest version, or `describe`"] = shop.calls(table.detail)
        sent["compaction of 4 buckets with 3 files each"] = shop.calls(lambda: table.compact(full=True))
        version = table.filestore.state().version
        feed = table.follow(mode="changelog", version=version, stop=lambda: True)
        sent["`follow`, each time it looks for a new version"] = shop.calls(lambda: list(feed))
        with shop.connect() as other:
            sent["open a table with 4 versions"] = shop.calls(lambda: other.table("shop.orders"))
    bounds = documented()
    beyond = {
        operation: [f"{call.kind} {call.key}" for call in calls]
        for operation, calls in sent.items()
        if len(calls) > bounds[operation]
    }
    assert beyond == {}
    assert not {call.key for call in sent["get of 10 keys, repeated"] if "_delta_log" not in call.key}


def wide_rows(shop: Shop, store: tablestore.Store, rows: int) -> list[str]:
    """Creates a table with a column of 16 kB texts beside a narrow one; returns the texts."""
    texts = [shop.rng.bytes(8 << 10).hex() for _ in range(rows)]
    store.create_database("shop")
    options = {"bucket": str(BUCKETS)}
    store.create_table("shop.orders", "id BIGINT, number INT, text STRING", primary_key=["id"], options=options)
    numbers = pa.array(np.arange(rows), pa.int32())
    store.table("shop.orders").write(pa.table({"id": np.arange(rows), "number": numbers, "text": texts}))
    return texts


def test_a_get_of_wide_rows_reads_their_pages_and_not_their_row_groups(shop: Shop) -> None:
    """Regression: each get of 10 rows of 16 kB read the row groups around them, 62.7 MB, again and again.

    Of each file it reads the end and the keys with what follows them, and for each row a page.
    """
    rows, page, end = 2000, 512 << 10, 64 << 10
    with shop.connect() as store:
        texts = wide_rows(shop, store, rows)
    some, other = list(range(0, rows, rows // 10)), 567
    sent: dict[str, list[Call]] = {}
    for keys, what in ([other], "get of a key of rows of 16 kB"), (some, "get of 10 keys of rows of 16 kB"):
        with shop.connect() as store:
            table = store.table("shop.orders")
            sent[f"{what}, the first"] = shop.calls(lambda keys=keys, table=table: table.get(keys))
            sent[f"{what}, repeated"] = shop.calls(lambda keys=keys, table=table: table.get(keys))
            assert table.get(keys).to_arrow()["text"].to_pylist() == [texts[key] for key in keys]
            sent["get of another such key"] = shop.calls(lambda table=table: table.get([other]))
    bounds = documented()
    assert {operation: len(calls) for operation, calls in sent.items() if len(calls) > bounds[operation]} == {}
    of_one, one_again, another, of_ten, ten_again = (sum(map(range_bytes, calls)) for calls in sent.values())
    assert of_one <= 2 * end + page
    assert of_ten <= BUCKETS * 2 * end + len(some) * page
    assert (one_again, ten_again) == (0, 0)
    assert 0 < another <= page


def range_bytes(call: Call) -> int:
    """How many bytes of an object a request asks for."""
    start, dash, end = call.range.removeprefix("bytes=").partition("-")
    return int(end) - int(start or 1) + 1 if dash else 0


def test_an_upsert_reads_nothing_that_this_process_wrote(shop: Shop, orders: tablestore.Table) -> None:
    orders.write(shop.some(np.arange(shop.rows)))
    shop.upsert(orders)
    for _ in range(2):
        version = orders.filestore.state().version
        calls = shop.calls(lambda: shop.upsert(orders))
        assert Counter(call.kind for call in calls if call.kind in WRITES) == {Kind.PUT: 2 * BUCKETS, Kind.PUT_IF: 1}
        read = Counter(call.key.rpartition("/")[2] for call in calls if call.kind in READS)
        known, newest = (f"{number:020}.json" for number in (version, version + 1))
        assert read.pop(newest) == 2, "the newest version is asked for when it begins, and before it commits"
        assert read == {known: 3}, "is it still this table: when it begins, before and after it commits"


class Together:
    """Holds certain requests back until so many of them have arrived."""

    def __init__(self, proxy: S3Proxy, count: int, of: Callable[[Call], bool]) -> None:
        self.arrived = 0
        self.alone = False
        """Whether a request waited for others that were not sent."""
        self._count = count
        self._of = of
        self._changed = Condition()
        proxy.choose = self._hold

    def _hold(self, call: Call) -> None:
        if self._of(call):
            with self._changed:
                self.arrived += 1
                self._changed.notify_all()
                self.alone |= not self._changed.wait_for(lambda: self.arrived >= self._count, timeout=30)


def test_files_of_all_buckets_are_uploaded_side_by_side(shop: Shop, orders: tablestore.Table) -> None:
    orders.write(shop.some(np.arange(5000)))
    together = Together(shop.proxy, 2 * BUCKETS, lambda call: call.kind is Kind.PUT)
    orders.write(shop.some(np.arange(1000)))
    assert (together.arrived, together.alone) == (2 * BUCKETS, False)


def test_key_columns_of_a_file_are_read_side_by_side(shop: Shop, orders: tablestore.Table) -> None:
    orders.write(shop.some(np.arange(60_000)))
    with shop.connect() as store:
        other = store.table("shop.orders")
        groups = 60_000 // BUCKETS // GROUP_ROWS  # the last one is in the file's end, which is known by then
        together = Together(shop.proxy, groups, lambda call: call.kind is Kind.GET_RANGE and "=-" not in call.range)
        assert other.get(list(range(0, 60_000, 50)), []).count_rows() == 1200
        assert together.arrived >= groups * BUCKETS
        assert not together.alone


def test_files_of_several_buckets_are_searched_side_by_side(shop: Shop, orders: tablestore.Table) -> None:
    """Regression: a get waited for three answers in each bucket, one bucket after the other."""
    orders.write(shop.some(np.arange(60_000)))
    with shop.connect() as store:
        other = store.table("shop.orders")
        together = Together(shop.proxy, BUCKETS, lambda call: "=-" in call.range)
        assert other.get(list(range(50))).count_rows() == 50
        assert (together.arrived, together.alone) == (BUCKETS, False)


def test_a_commit_reads_its_base_and_the_next_version_side_by_side(shop: Shop, orders: tablestore.Table) -> None:
    puts: list[Call] = []

    def commits(call: Call) -> bool:
        if call.kind is Kind.PUT:
            puts.append(call)
        return bool(puts) and call.kind is Kind.GET

    together = Together(shop.proxy, 2, commits)
    orders.write(shop.some(np.arange(1000)))
    assert (together.arrived, together.alone) == (2, False)


def test_an_upload_that_fails_commits_nothing(
    shop: Shop, orders: tablestore.Table, depth: Depth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write waits for its uploads at its end, and each of them counts."""
    monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retries, "_LONGEST_PAUSE_S", 0.002)
    orders.write(shop.some(np.arange(5000)))
    for failing in depth.sample(range(2 * BUCKETS), 3):
        keys: list[str] = []

        def fail(call: Call, failing: int = failing, keys: list[str] = keys) -> Fault | None:
            if call.kind is not Kind.PUT:
                return None
            if call.attempt == 1:
                keys.append(call.key)
            return Fault.SLOW_DOWN if call.key in keys[failing : failing + 1] else None

        shop.proxy.choose = fail
        with pytest.raises(Unavailable):
            orders.write(shop.some(np.arange(1000)))
        shop.proxy.choose = lambda _: None
        assert len(keys) > failing
        assert orders.filestore.state().version == 1
    assert not orders.examine().findings, "nothing of them is left"

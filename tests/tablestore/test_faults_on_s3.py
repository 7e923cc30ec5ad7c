"""A table in S3 whose requests fail, one after the other, in each operation of its life.

A fault at one request is repeated away: the operation succeeds, and nobody notices. An outage from one request on makes
it fail with `Unavailable`, never with `Corrupt`; afterwards the table is whole and the same operation succeeds.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

import tablestore
from filestore.ambient import system_ambient
from filestore.errors import CommitUnknown, Unavailable
from filestore.storage.locations import S3Store
from filestore.storage.objects import ObjectStorage
from filestore.storage.refusals import BUSY, NO_ANSWER
from filestore.storage.s3_settings import S3Settings
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.depth import Depth, sampled
from tests.filestore.storage.places import impatient
from tests.integration.foreign import ForeignConsumer
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Call, Chooser, Fault, S3Proxy
from tests.tables import Clock, assert_healthy, seeded
from tests.tablestore.test_fault_matrix import OPERATIONS, Operation, made, three_versions
from tests.warehouses import Row, assert_same_rows, rows

pytestmark = pytest.mark.s3

ONE_REQUEST = (
    Fault.SLOW_DOWN,
    Fault.SLOW_DOWN_AFTER,
    Fault.RESET,
    Fault.RESET_AFTER,
    Fault.TIME_OUT,
    Fault.TIME_OUT_AFTER,
    Fault.CUT_OFF,
    Fault.SLOW_BODY,
)
NO_REPLY = (Fault.TIME_OUT, Fault.TIME_OUT_AFTER)
OUTAGES = (Fault.SLOW_DOWN, Fault.RESET_AFTER)
CASES = [(fault, False) for fault in ONE_REQUEST] + [(fault, True) for fault in OUTAGES]


def remove_all_orphans(table: Table) -> None:
    table.remove_orphans(timedelta(0), dry_run=False, even_young=True)


def plant_an_orphan(table: Table) -> None:
    three_versions(table)
    path = f"{table.location}/bucket-00000/{system_ambient().new_id()}.parquet"
    table.opened.storage.write_new(path, b"")


LIFE = {name: operation for name, operation in OPERATIONS.items() if "none" in operation.logs} | {
    "checkpoint": replace(OPERATIONS["upsert"], options={"checkpoint.interval": "3"}),
    "orphans": Operation(remove_all_orphans, plant_an_orphan),
    "doctor": Operation(lambda table: table.examine(), three_versions),
    "scan": Operation(lambda table: rows(table), three_versions, {"write-mode": "merge-on-read"}),
    "look-up": Operation(lambda table: table.get([{"id": 3}]), three_versions),
}


@pytest.fixture
def proxy(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    with S3Proxy(moto) as between:
        between.slow_s = 0.1
        impatient(monkeypatch, 2)
        between.set_environment(monkeypatch)
        whole = S3Settings.delta_options
        monkeypatch.setattr(S3Settings, "delta_options", lambda self, bucket: whole(self, bucket) | {"timeout": "2s"})
        yield between


def at(number: int, fault: Fault, *, and_later: bool) -> Chooser:
    """The fault of one request, or of it and all after it."""

    def choose(call: Call) -> Fault | None:
        return fault if call.number == number or (and_later and call.number > number) else None

    return choose


@dataclass
class Bucket:
    """A bucket into which copies of a local table are put, each time in a folder of its own."""

    proxy: S3Proxy
    template: Table
    name: str
    library: str = "obstore"
    copies: int = 0

    def copy(self) -> str:
        self.copies += 1
        with self.proxy._server.client() as s3:
            for path in Path(self.template.location).rglob("*"):
                if path.is_file():
                    key = f"{self.copies}/{path.relative_to(self.template.location)}"
                    s3.put_object(Bucket=self.name, Key=key, Body=path.read_bytes())
        return f"s3://{self.name}/{self.copies}"

    def opened(self, location: str, seed: int = 1) -> Table:
        """The table of a copy, as a process has it that knows nothing yet."""
        storage = ObjectStorage(S3Store(S3Settings(self.proxy.endpoint, self.proxy.region), self.library))
        identity = replace(self.template.opened.identity, location=location)
        return Table(OpenedTable(identity, storage, seeded(seed, Clock(system_ambient().now_ms()))))


@contextmanager
def bucket(proxy: S3Proxy, operation: Operation, library: str = "obstore") -> Iterator[Bucket]:
    with made(operation, "none") as template:
        yield Bucket(proxy, template, proxy.new_bucket(), library)


@contextmanager
def faults(proxy: S3Proxy, choose: Chooser) -> Iterator[None]:
    proxy.reset()
    proxy.choose = choose
    try:
        yield
    finally:
        proxy.choose = lambda _: None


THROUGH_S3FS = ("fold", "upsert", "compaction", "expiry of versions", "orphans", "look-up")
"""What is tried through s3fs, too."""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "fault", "outage", "library"),
    [
        *sampled([(name, *case, "obstore") for name in LIFE for case in CASES], fast=400, test=96, names=4),
        *sampled([(name, *case, "s3fs") for name in THROUGH_S3FS for case in CASES], fast=400, test=60, names=4),
    ],
)
@pytest.mark.timeout(1800)
def test_an_operation_whose_requests_fail(
    name: str, fault: Fault, outage: bool, library: str, proxy: S3Proxy, depth: Depth
) -> None:
    operation = LIFE[name]
    with bucket(proxy, operation, library) as made_in:
        table = made_in.opened(made_in.copy())
        before = rows(table)
        with faults(proxy, lambda _: None):
            operation.act(made_in.opened(table.location))
        requests, after = len(proxy.calls), rows(made_in.opened(table.location))
        assert requests > 2
        for number in depth.sample(range(1, requests + 1), 3, deep=6 if fault in NO_REPLY else 3):
            location = made_in.copy()
            with faults(proxy, at(number, fault, and_later=outage)):
                fails(lambda to=location: operation.act(made_in.opened(to)), outage)
            found = checked(made_in.opened(location), before, after, whole=not outage)
            if found != after or outage:
                operation.act(made_in.opened(location, 2))
            made_in.opened(location, 3).remove_orphans(timedelta(0), dry_run=False, even_young=True)
            assert checked(made_in.opened(location), before, after, whole=True) == after


def fails(act: Callable[[], object], outage: bool) -> None:
    """Acts; only an outage may be noticed."""
    if not outage:
        act()
        return
    try:
        act()  # it succeeds if only what makes later work faster was left, such as a checkpoint
    except Unavailable as error:
        # the last one: a commit on which the operation builds, such as a fold, has an unknown outcome
        assert error.code in (BUSY, NO_ANSWER, CommitUnknown.default_code, Unavailable.default_code), error


def checked(table: Table, before: list[Row], after: list[Row], *, whole: bool) -> list[Row]:
    assert_healthy(table.filestore)
    found = rows(table)
    assert found in ([after] if whole else [before, after])
    return found


# ------------------------------------------------------------------------------------------------- creating, dropping

DDL = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"


@pytest.fixture
def lake(proxy: S3Proxy, tmp_path: Path) -> Iterator[tablestore.Store]:
    """A store whose catalog is a local database."""
    options = {"endpoint": proxy.endpoint, "region": proxy.region}
    database = f"sqlite:///{tmp_path}/catalog.db"
    with tablestore.connect(f"s3://{proxy.new_bucket()}/lake", database=database, storage_options=options) as opened:
        opened.create_database("shop")
        yield opened


@pytest.mark.few(1)
@pytest.mark.parametrize(("fault", "outage"), sampled(CASES, fast=9, test=5, names=2))
def test_creating_and_dropping(fault: Fault, outage: bool, lake: tablestore.Store, proxy: S3Proxy) -> None:
    def create() -> Table:
        table = lake.create_table("shop.t", DDL, if_not_exists=True)
        assert isinstance(table, Table)
        return table

    with faults(proxy, lambda _: None):
        create()
    creating = len(proxy.calls)
    lake.table("shop.t").write([{"id": n, "v": "a"} for n in range(9)])
    with faults(proxy, lambda _: None):
        lake.drop_table("shop.t")
    dropping = len(proxy.calls)
    for number in range(1, creating + 1):
        with faults(proxy, at(number, fault, and_later=outage)):
            fails(create, outage)
        table = create()
        assert_healthy(table.filestore)
        table.write([{"id": n, "v": "a"} for n in range(9)])
        with faults(proxy, at(1 + number % dropping, fault, and_later=outage)):
            fails(lambda: lake.drop_table("shop.t", if_exists=True), outage)
        lake.drop_table("shop.t", if_exists=True)
        assert lake.list_tables("shop") == []
        assert proxy._server.keys(lake.target.split("/")[2]) == []


# ------------------------------------------------------------------------------------------------------------ its log

LOGGED = (
    "upsert",
    "delete",
    "insert without a key",
    "upsert to an eventual log",
    "overwrite",
    "rollback",
    "change of an option",
)
WITH_A_LOG = [(Fault.SLOW_DOWN_AFTER, False), (Fault.TIME_OUT, False), *((fault, True) for fault in OUTAGES)]


@pytest.mark.deep
@pytest.mark.kafka
@pytest.mark.parametrize(("name", "fault", "outage"), [(name, *case) for name in LOGGED for case in WITH_A_LOG])
@pytest.mark.timeout(1800)
def test_an_operation_of_a_table_with_its_log_in_kafka(
    name: str,
    fault: Fault,
    outage: bool,
    lake: tablestore.Store,
    proxy: S3Proxy,
    kafka_broker: KafkaBroker,
    depth: Depth,
) -> None:
    """Log and files agree after each fault; the dead transactions of an outage are given up."""
    operation, numbers = OPERATIONS[name], count()
    logged = {"log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap, "log.lease-timeout": "1 s"}

    def made_anew() -> Table:
        key = operation.key
        columns = f"id INT{' NOT NULL' if key else ''}, day STRING, v INT"
        options = {"bucket": "2", **logged, **operation.options}
        made_as = f"shop.t{next(numbers)}"
        lake.create_table(made_as, columns, primary_key=list(key), options=options)
        table = lake.table(made_as)
        operation.setup(table)
        return table

    table = made_anew()
    before = rows(table)
    with faults(proxy, lambda _: None):
        operation.act(elsewhere(table))
    requests, after = len(proxy.calls), rows(table)
    for number in depth.sample(range(1, requests + 1), 3, deep=5):
        table = made_anew()
        with faults(proxy, at(number, fault, and_later=outage)):
            fails(lambda to=table: operation.act(elsewhere(to)), outage)
        found = checked(elsewhere(table), before, after, whole=not outage)
        if found != after or outage:
            operation.act(elsewhere(table))
        table.recover()
        assert checked(elsewhere(table), before, after, whole=True) == after
        assert assert_same_rows(elsewhere(table), others=False) == after
        with ForeignConsumer(table) as foreign:
            if operation.options.get("log.consistency") != "eventual":
                foreign.catch_up()


def elsewhere(table: Table) -> Table:
    """The table as a process has it that knows nothing yet."""
    return again(table, storage=pickle.loads(pickle.dumps(table.opened.storage)))


# ------------------------------------------------------------------------------------------------------------ outages


def test_an_outage_of_the_store_is_no_damage(lake: tablestore.Store, proxy: S3Proxy) -> None:
    lake.create_table("shop.t", DDL, options={"write-mode": "merge-on-read", "changelog-producer": "none"})
    table = lake.table("shop.t")
    for v in "ab":
        table.write([{"id": n, "v": v} for n in range(9)])
    expected = rows(table)
    other = lake.table("shop.t")
    works: dict[str, Callable[[], object]] = {
        "write": lambda: table.write([{"id": 1, "v": "c"}]),
        "scan": lambda: rows(other),
        "get": lambda: table.get([{"id": 1}]),
        "compact": lambda: table.compact(full=True),
        "tag": lambda: table.create_tag("now"),
        "rollback": lambda: table.rollback(1),
        "alter": lambda: table.alter("SET snapshot.num-retained.min = 3"),
        "expire": lambda: table.expire(),
        "orphans": lambda: table.remove_orphans(),
        "doctor": lambda: table.examine(),
        "create": lambda: lake.create_table("shop.u", DDL),
    }
    proxy.stop()
    for name, work in works.items():
        with pytest.raises(Unavailable) as refused:
            work()
        assert refused.value.code == NO_ANSWER, name
    proxy.start()
    assert rows(table) == expected
    for work in works.values():
        work()
    assert_healthy(table.filestore)


def test_the_doctor_reports_no_damage_of_a_store_that_stops_answering(proxy: S3Proxy, depth: Depth) -> None:
    """Whatever it could not read is no finding, and what it could not check is not called healthy."""
    with bucket(proxy, LIFE["doctor"]) as made_in:
        table = made_in.opened(made_in.copy())
        with faults(proxy, lambda _: None):
            assert table.examine().findings == ()
        for number in depth.sample(range(1, len(proxy.calls) + 1), 5):
            doctor = made_in.opened(table.location)
            with faults(proxy, at(number, Fault.SLOW_DOWN, and_later=True)):
                try:
                    doctor.examine()
                except Unavailable:
                    continue
            assert not proxy.faults, f"request {number} failed"  # the number of requests side by side varies a little

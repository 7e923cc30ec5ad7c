"""``python -m tests.bench.growth [--runs K] [-k WORD] [--spark]``: does a cost grow faster than what a user lets grow?

Each operation is measured at n and at 4 n of one dimension: partitions of a write, buckets, columns, batches, versions,
tags, keys, terms of a condition, ALTERs, tables, the length of values; in this process, by the catalog service, and
with ``--spark`` in Spark, which takes some minutes. Printed is the exponent of the growth, by processor time, which
others on the machine change less; both sizes take turns, and each has its least time. Linear work is 1 or less, since
every operation has a part that does not grow. (n times ADD COLUMN is not among them: each commit has the whole schema,
as in every Delta table. So has it all tags.) Above 1.15 is marked as a fault, and exit status 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from filestore.model.changes import SetComment
from tablestore import Store, Table
from tests.bench.growth_places import LOCAL, SERVICE, SPARK, Place, seconds, sql

FAULT = 1.15
ATTEMPTS = 3
FACTOR = 4
NO_LOG = {"log.system": "none"}

Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One operation and one dimension.

    Attributes:
        dimension: What grows.
        operation: What is measured.
        n: The smaller size.
        prepare: Makes everything of a size in an empty store; it returns the work.
        place: Where that is.
    """

    dimension: str
    operation: str
    n: int
    prepare: Callable[[Store, int], Work]
    place: Place = LOCAL

    def __str__(self) -> str:
        """What grows, and what is measured where."""
        return f"{self.dimension}: {self.operation}{_PLACES[self.place]}"


_PLACES = {LOCAL: "", SERVICE: ", by the service", SPARK: ", in Spark"}


def made(store: Store, columns: str = "id BIGINT, a BIGINT, s STRING", key: str = "id", **how: object) -> Table:
    options = {**NO_LOG, **how.pop("options", {})}  # type: ignore[dict-item]
    made_table = store.create_table("shop.t", columns, primary_key=key.split(), options=options, **how)  # type: ignore[arg-type]
    assert isinstance(made_table, Table)
    return made_table


def rows(count: int, length: int = 8) -> pl.DataFrame:
    numbers = pl.int_range(count, eager=True)
    return pl.DataFrame({"id": numbers, "a": numbers % 7, "s": numbers.cast(pl.String).str.pad_start(length, "x")})


def partitions(store: Store, n: int, key: str, options: dict[str, str]) -> Work:
    table = made(store, "id BIGINT, p BIGINT", key, partition_by=["p"], options=options)
    given = pl.DataFrame({"id": range(2 * n), "p": [k % n for k in range(2 * n)]})
    return lambda: table.write(given)


def scan_of_partitions(store: Store, n: int) -> Work:
    partitions(store, n, "", {})()
    table = store.table("shop.t")
    return lambda: table.scan().to_arrow()


def buckets(store: Store, n: int) -> Work:
    table = made(store, options={"bucket": str(n)})
    given = rows(10 * n)
    return lambda: table.write(given)


def wide(n: int) -> str:
    return "id BIGINT, " + ", ".join(f"c{k} INT" for k in range(n))


def create_wide(store: Store, n: int) -> Work:
    return lambda: made(store, wide(n))


def write_wide(store: Store, n: int) -> Work:
    table = made(store, wide(n))
    given = pl.DataFrame({"id": range(100), **{f"c{k}": [k] * 100 for k in range(n)}})
    return lambda: table.write(given)


def scan_wide(store: Store, n: int) -> Work:
    write_wide(store, n)()
    table = store.table("shop.t")
    return lambda: table.scan().to_arrow()


def written(store: Store, n: int) -> Work:
    table, given = made(store), rows(n)
    return lambda: table.write(given)


def batches(store: Store, n: int) -> Work:
    table, parts = made(store), [rows(100).to_arrow().to_batches()[0] for _ in range(n)]
    return lambda: table.write(pa.RecordBatchReader.from_batches(parts[0].schema, parts))


def writes(store: Store, n: int, **options: str) -> Work:
    table = made(store, options={"bucket": "1", **options})

    def work() -> None:
        for number in range(n):
            table.write([{"id": number, "a": 1, "s": "x"}])

    return work


def after_writes(use: Callable[[Store, Table], object]) -> Callable[[Store, int], Work]:
    def prepare(store: Store, n: int) -> Work:
        writes(store, n)()
        table = store.table("shop.t")
        return lambda: use(store, table)

    return prepare


def followed(store: Store, n: int) -> Work:
    writes(store, n, **{"log.system": "embedded"})()
    table = store.table("shop.t")
    return lambda: list(table.follow("full", version=1, stop=n))


def reopened(store: Store, _table: Table) -> None:
    with tablestore.connect(store.target) as other:
        other.table("shop.t").scan().to_arrow()


def keys(store: Store, n: int) -> Work:
    table = made(store)
    table.write(rows(200_000))
    return lambda: table.get(list(range(0, 10 * n, 10)))


def deleted(store: Store, n: int) -> Work:
    table = made(store)
    table.write(rows(n))
    return lambda: table.delete("a >= 0")


def terms(term: Callable[[int], str], join: str) -> Callable[[Store, int], Work]:
    def prepare(store: Store, n: int) -> Work:
        table = made(store)
        table.write(rows(20_000))
        where = join.join(term(k) for k in range(n))
        return lambda: table.scan(where=where).to_arrow()

    return prepare


def alters(store: Store, n: int) -> Work:
    table = made(store)

    def work() -> None:
        for k in range(n):
            table.alter(SetComment(f"the {k}th", "a"))

    return work


def tables(store: Store, n: int) -> Work:
    def work() -> None:
        for k in range(n):
            store.create_table(f"shop.t{k}", "id BIGINT", options=NO_LOG)

    return work


def listed(store: Store, n: int) -> Work:
    tables(store, n)()
    return lambda: [store.list_tables("shop") for _ in range(20)]


def tagged(store: Store, n: int) -> Table:
    table = made(store)
    table.write(rows(10))
    for k in range(n):
        table.create_tag(f"tag{k}")
    return table


def create_tags(store: Store, n: int) -> Work:
    table = tagged(store, n)
    return lambda: [table.create_tag(f"new{k}") for k in range(10)]


def with_tags(use: Callable[[Table, int], object]) -> Callable[[Store, int], Work]:
    def prepare(store: Store, n: int) -> Work:
        table = tagged(store, n)
        return lambda: use(table, n)

    return prepare


def scans_of_a_tag(table: Table, n: int) -> None:
    for _ in range(20):
        table.scan(tag=f"tag{n - 1}").to_arrow()


def inserted(how: str, key: str) -> Callable[[Store, int], Work]:
    """An INSERT into n partitions."""

    def prepare(store: Store, n: int) -> Work:
        partitions(store, n, key, {})
        return lambda: sql(f"INSERT {how} t SELECT id, id % {n} FROM range({2 * n})")

    return prepare


def asked(work: Callable[[Store, int], Work], query: Callable[[int], str]) -> Callable[[Store, int], Work]:
    """A query in Spark of what some other work has made."""

    def prepare(store: Store, n: int) -> Work:
        work(store, n)()
        return lambda: sql(query(n))

    return prepare


def written_few(store: Store, _n: int) -> Work:
    return written(store, 1000)


def ored(n: int) -> str:
    return f"SELECT * FROM t WHERE {' OR '.join(f'id = {k} AND a = {k}' for k in range(n))}"


def insert_wide(store: Store, n: int) -> Work:
    made(store, wide(n))
    values = ", ".join(f"{k}" for k in range(n))
    return lambda: sql(f"INSERT INTO t SELECT id, {values} FROM range(100)")


def long_values(store: Store, n: int) -> Work:
    table, given = made(store), rows(200, n)
    return lambda: (table.write(given), table.scan().to_arrow())


CASES = (
    Case("partitions", "write without a key", 100, lambda s, n: partitions(s, n, "", {})),
    Case("partitions", "write with a key", 100, lambda s, n: partitions(s, n, "id p", {})),
    Case("partitions", "write with a log", 100, lambda s, n: partitions(s, n, "id p", {"log.system": "embedded"})),
    Case("partitions", "scan", 100, scan_of_partitions),
    Case("partitions", "INSERT", 250, inserted("INTO", "id p"), SPARK),
    Case("partitions", "INSERT OVERWRITE", 250, inserted("OVERWRITE", ""), SPARK),
    Case("partitions", "SELECT", 100, asked(lambda s, n: partitions(s, n, "", {}), lambda n: "SELECT * FROM t"), SPARK),
    Case("buckets", "write", 32, buckets),
    Case("columns", "create", 400, create_wide),
    Case("columns", "write", 400, write_wide),
    Case("columns", "scan", 400, scan_wide),
    Case("columns", "INSERT", 200, insert_wide, SPARK),
    Case("columns", "SELECT", 200, asked(write_wide, lambda n: "SELECT * FROM t"), SPARK),
    Case("batches", "write", 250, batches),
    Case("rows", "write", 250_000, written),
    Case("versions", "n writes", 25, writes),
    Case("versions", "open and scan", 50, after_writes(reopened)),
    Case("versions", "doctor", 50, after_writes(lambda s, t: s.examine("shop.t"))),
    Case("versions", "history", 50, after_writes(lambda s, t: t.system("snapshots").to_arrow())),
    Case("versions", "follow", 50, followed),
    Case("versions", "compaction", 50, after_writes(lambda s, t: t.compact(full=True))),
    Case("versions", "n writes", 15, writes, SERVICE),
    Case("versions", "open and scan", 30, after_writes(reopened), SERVICE),
    Case("versions", "history", 30, after_writes(lambda s, t: t.system("snapshots").to_arrow()), SERVICE),
    Case("versions", "SELECT", 25, asked(writes, lambda n: "SELECT * FROM t"), SPARK),
    Case("versions", "SELECT of the history", 25, asked(writes, lambda n: "SELECT * FROM t$snapshots"), SPARK),
    Case("tags", "create 10 more", 20, create_tags),
    Case("tags", "list", 20, with_tags(lambda t, n: [t.tags() for _ in range(50)])),
    Case("tags", "scan of one", 20, with_tags(scans_of_a_tag)),
    Case("keys", "get", 4000, keys),
    Case("keys", "delete", 50_000, deleted),
    Case("terms", "a = 1 OR a = 2 …", 500, terms(lambda k: f"id = {k}", " OR ")),
    Case("terms", "(a = 1 AND b = 2) OR …", 250, terms(lambda k: f"(id = {k} AND a = {k})", " OR ")),
    Case("terms", "a BETWEEN 1 AND 2 OR …", 250, terms(lambda k: f"id BETWEEN {9 * k} AND {9 * k}", " OR ")),
    Case("terms", "a <> 1 AND a <> 2 …", 500, terms(lambda k: f"s <> '{k}'", " AND ")),
    Case("terms", "(a = 1 AND b = 2) OR …", 200, asked(written_few, ored), SPARK),
    Case("ALTERs", "n times", 40, alters),
    Case("ALTERs", "n times", 20, alters, SERVICE),
    Case("tables", "create n", 25, tables),
    Case("tables", "list", 25, listed),
    Case("tables", "create n", 25, tables, SERVICE),
    Case("tables", "list", 25, listed, SERVICE),
    Case("tables", "SHOW TABLES", 25, asked(tables, lambda n: "SHOW TABLES"), SPARK),
    Case("length of values", "write and scan", 10_000, long_values),
)


def measured(case: Case, n: int) -> float:
    """Processor seconds for one size, on a store of its own."""
    with case.place() as store:
        work = case.prepare(store, n)
        begin = seconds()
        work()
        return seconds() - begin


def exponents(cases: list[Case], runs: int) -> Iterator[tuple[Case, float, float, float]]:
    """Yields each case with its seconds at n and at 4 n, and its exponent; what may be a fault is measured again."""
    for case in cases:
        measured(case, max(1, case.n // FACTOR))  # what is loaded or compiled once
        small, large, exponent = math.inf, math.inf, math.inf
        for _ in range(ATTEMPTS):
            for _ in range(runs):
                small, large = min(small, measured(case, case.n)), min(large, measured(case, FACTOR * case.n))
            if (exponent := math.log(large / small, FACTOR)) <= FAULT:
                break
        yield case, small, large, exponent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("-k", default="", help="only cases with that word")
    parser.add_argument("--spark", action="store_true", help="also what is done in Spark")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if arguments.k in str(case) and (arguments.spark or case.place is not SPARK)]
    console, faults, printed = Console(), 0, Printed("grows", "operation", "n", "s at n", "s at 4 n", "exponent")
    for case, small, large, exponent in exponents(chosen, arguments.runs):
        faults += exponent > FAULT
        mark = f"[red]{exponent:.2f} FAULT[/red]" if exponent > FAULT else f"{exponent:.2f}"
        operation = f"{case.operation}{_PLACES[case.place]}"
        printed.add_row(case.dimension, operation, f"{case.n:,}", f"{small:.3f}", f"{large:.3f}", mark)
        print(f"{case}: {exponent:.2f}", file=sys.stderr, flush=True)
    console.print(printed)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())

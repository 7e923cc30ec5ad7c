"""No setting of Spark makes a read of our tables leave out a file that cannot be read, or move its times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from filestore.delta.vectors import vector_file
from filestore.errors import TableStoreError
from filestore.parquet.ranges import Chunks
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import Depth
from tests.spark.sql.conftest import Sql

SKIPPING = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
SKIP = {"ignoreMissingFiles": "true", "IGNORECORRUPTFILES": "true", "ignorecorruptfiles": "true"}
LEGACY = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
}
KINDS = ("keyless", "keyed", "vectors", "pending", "mapped")
ROWS = 300


def make(sql: Sql, kind: str) -> None:
    """Makes a table of three files with 300 rows, in a few versions."""
    key = "" if kind == "keyless" else ", PRIMARY KEY (id)"
    mode = "merge-on-read" if kind == "pending" else "merge-on-write"
    sql(
        f"CREATE TABLE lake.shop.t (id BIGINT, v INT{key}) TBLPROPERTIES ('bucket' = '{3 if key else 1}', "
        f"'write-mode' = '{mode}', 'changelog-producer' = '{'lookup' if key else 'none'}', 'log.system' = 'none', "
        "'schema.evolution-mode' = 'metadata', 'file.compression' = 'none')"
    )
    for start in (0, 100, 200):
        sql(f"INSERT INTO lake.shop.t SELECT id, CAST(id AS INT) FROM range({start}, {start + 100})")
    if kind == "pending":
        sql("CALL lake.sys.compact('shop.t', true)")
    if kind in ("vectors", "pending"):
        sql("INSERT INTO lake.shop.t VALUES (7, 70), (8, 80), (9, 90)")  # which replace rows
    if kind == "mapped":
        sql("ALTER TABLE lake.shop.t RENAME COLUMN v TO old")
        sql("ALTER TABLE lake.shop.t RENAME COLUMN old TO v")


def largest_file(table: Table) -> Path:
    files = table.filestore.state().files
    return Path(table.location, max(files, key=lambda file: file.size).path)


def a_vector(table: Table) -> Path:
    vectors = [file.vector for file in table.filestore.state().files if file.vector is not None]
    return Path(table.location, vector_file(vectors[0]))


@contextmanager
def damaged(file: Path, damage: str) -> Iterator[None]:
    """Takes a file away, or damages it, in this block."""
    before = file.read_bytes()
    match damage:
        case "missing":
            file.unlink()
        case "cut":
            file.write_bytes(before[: len(before) // 2])
        case "other bytes":
            file.write_bytes(bytes(len(before)))
        case "a bit":  # of the content of a page of each column
            changed = bytearray(before)
            for _, end in Chunks(pq.read_metadata(file)).ranges(0):
                changed[end - 1] ^= 4
            file.write_bytes(changed)
    yield
    file.write_bytes(before)


@contextmanager
def settings(session: SparkSession, given: dict[str, str]) -> Iterator[None]:
    for name, value in given.items():
        session.conf.set(name, value)
    yield
    for name in given:
        session.conf.unset(name)


@pytest.fixture
def lake(session: SparkSession, store: Store) -> SparkStore:
    return SparkStore(session, store)


FAILURES = (PySparkException, Py4JJavaError, TableStoreError)
Statement = Callable[[SparkSession, SparkStore, Table], object]

MERGE = "MERGE INTO lake.shop.t t USING (SELECT id FROM range(300)) s ON t.id = s.id WHEN MATCHED THEN "


def statements(kind: str, frames: dict[str, DataFrame]) -> dict[str, Statement]:
    """Returns all ways to read all rows, by name: SQL, and functions of a session, a store and its table."""
    texts = (
        "SELECT sum(v) FROM lake.shop.t",
        "SELECT sum(v) FROM lake.shop.sums",
        "UPDATE lake.shop.t SET v = v + 1",
        "DELETE FROM lake.shop.t WHERE v % 2 = 1",
        f"{MERGE} UPDATE SET v = t.v + 1",
        f"{MERGE} DELETE",
        f"{MERGE.replace('t.id', 't.v').replace('MATCHED', 'NOT MATCHED')} INSERT (id) VALUES (s.id + 1000)",
        "INSERT OVERWRITE lake.shop.t SELECT id, v + 1 FROM lake.shop.t",
        "INSERT INTO lake.shop.t SELECT id, v + 1 FROM lake.shop.t",
        "INSERT INTO lake.shop.copies SELECT id, v FROM lake.shop.t",
        "CREATE TABLE lake.shop.made AS SELECT id, v FROM lake.shop.t",
    )
    found: dict[str, Statement] = {text: partial(run, text) for text in texts}
    found |= {f"frame of before: {name}": partial(collected, frame) for name, frame in frames.items()}
    found |= {
        "the version": lambda s, _, t: s.sql(
            f"SELECT sum(v) FROM lake.shop.t VERSION AS OF {t.filestore.state().version}"
        ).collect(),
        "format('delta')": lambda s, _, t: summed(s.read.format("delta").load(t.location)),
        "options of a read": lambda s, _, t: summed(s.read.options(**SKIP).format("delta").load(t.location)),
        "options of a table": lambda s, _, t: summed(s.read.options(**SKIP).table("lake.shop.t")),
        "options of a stream": lambda s, _, t: drained(
            s, lambda r: r.options(**SKIP).format("delta").load(t.location), t
        ),
        "format('tablestore')": lambda s, lake, _: (
            s.read.format("tablestore")
            .option("catalog", lake.store.target)
            .load("shop.t")
            .selectExpr("sum(v)")
            .collect()
        ),
        "its stream": lambda s, _, t: drained(s, lambda r: r.format("delta").load(t.location), t),
        "our stream": lambda s, _, t: drained(s, lambda r: r.table("lake.shop.t").select("*", "_kind"), t),
        "SparkStore.read": lambda _, lake, __: summed(lake.read("shop.t")),
        "SparkStore.write": lambda _, lake, __: lake.write("shop.t", lake.read("shop.t"), overwrite=True),
        "a cached table": cached,
        "a view's refresh": lambda _, lake, __: lake.refresh("shop.stored", rebuild=True),
    }
    if kind == "pending":  # Delta alone does not see what is pending
        for name in ("format('delta')", "its stream", "options of a read", "options of a stream"):
            del found[name]
    return found


def run(statement: str, session: SparkSession, *_: object) -> object:
    return session.sql(statement).collect()


def collected(frame: DataFrame, *_: object) -> object:
    return frame.collect()


def summed(frame: DataFrame) -> object:
    return frame.selectExpr("sum(v)").collect()


def drained(session: SparkSession, read: Callable[..., DataFrame], table: Table) -> None:
    """Runs a stream of all rows to its end."""
    query = read(session.readStream).writeStream.format("noop").trigger(availableNow=True)
    place = Path(table.location).parent / f"checkpoint-{len(list(Path(table.location).parent.iterdir()))}"
    query.option("checkpointLocation", str(place)).start().awaitTermination()


def cached(session: SparkSession, lake: SparkStore, table: Table) -> None:
    frame = session.table("lake.shop.t").cache()
    try:
        summed(frame)
    finally:
        frame.unpersist()


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", ["missing", "cut", "other bytes", "a bit"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_read_fails_every_statement(
    session: SparkSession, sql: Sql, store: Store, lake: SparkStore, kind: str, damage: str, depth: Depth
) -> None:
    """An UPDATE committed 200 of 300 rows."""
    make(sql, kind)
    sql("CREATE VIEW lake.shop.sums AS SELECT sum(v) AS v FROM lake.shop.t")
    sql("CREATE TABLE lake.shop.copies (id BIGINT, v INT)")
    sql("CREATE MATERIALIZED VIEW lake.shop.stored AS SELECT count(v) AS n FROM lake.shop.t GROUP BY v % 10")
    table = store.table("shop.t")
    version, expected = table.filestore.state().version, sql("SELECT * FROM lake.shop.t")
    assert len(expected) == ROWS
    frames = {"a table": session.table("lake.shop.t").selectExpr("sum(v)")}
    done = []
    tried = statements(kind, frames)
    with settings(session, dict.fromkeys(SKIPPING, "true")), damaged(largest_file(table), damage):
        for name in depth.sample(tried, 12):
            try:
                tried[name](session, lake, table)
            except FAILURES:
                continue
            done.append(name)
    assert done == []
    assert table.filestore.state().version == version
    assert sql("SELECT * FROM lake.shop.t") == expected


@pytest.mark.parametrize(
    "kind", ["vectors", *(pytest.param(k, marks=pytest.mark.deep) for k in KINDS if k != "vectors")]
)
def test_a_flipped_bit_of_a_page_fails_the_query(
    session: SparkSession, sql: Sql, store: Store, lake: SparkStore, kind: str, depth: Depth
) -> None:
    """Spark's readers look at the checksums of pages only if an option of the read says so."""
    make(sql, kind)
    table = store.table("shop.t")
    for file in depth.sample(sorted(Path(table.location).glob("bucket-*/*.parquet")), 1):
        with damaged(file, "a bit"):
            ours, delta = partial(session.table, "lake.shop.t"), session.read.format("delta")
            for frame in (ours, partial(delta.load, table.location)):
                with pytest.raises(FAILURES, match=file.name):
                    summed(frame())
            with pytest.raises(FAILURES, match=file.name):
                sql("UPDATE lake.shop.t SET v = v + 1")
    assert len(sql("SELECT * FROM lake.shop.t")) == ROWS


@pytest.mark.deep
def test_a_vector_that_cannot_be_read_fails_the_query(
    session: SparkSession, sql: Sql, store: Store, lake: SparkStore
) -> None:
    """Spark takes a missing vector for a missing file, and would leave out all rows of that file."""
    make(sql, "vectors")
    vector = a_vector(store.table("shop.t"))
    for damage in ("missing", "cut"):
        with settings(session, dict.fromkeys(SKIPPING, "true")), damaged(vector, damage):
            for frame in (session.table("lake.shop.t"), lake.read("shop.t")):
                with pytest.raises(FAILURES):
                    summed(frame)
    assert len(sql("SELECT * FROM lake.shop.t")) == ROWS


@pytest.mark.deep
@pytest.mark.parametrize("damage", ["missing", pytest.param("cut", marks=pytest.mark.deep)])
def test_changes_that_cannot_be_read_fail_the_query(session: SparkSession, sql: Sql, store: Store, damage: str) -> None:
    make(sql, "keyed")
    query = "SELECT sum(v) FROM lake.shop.t CHANGES FROM VERSION 1 TO VERSION 3"
    expected = sql(query)
    files = sorted(Path(store.table("shop.t").location).rglob("*.parquet"))
    with settings(session, dict.fromkeys(SKIPPING, "true")), ExitStack() as all_of_them:
        for file in files:
            all_of_them.enter_context(damaged(file, damage))
        with pytest.raises(FAILURES):
            sql(query)
    assert sql(query) == expected


@pytest.mark.parametrize(
    "kind", ["keyed", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("pending", "mapped"))]
)
def test_old_times_are_not_moved_to_another_calendar(
    session: SparkSession, sql: Sql, lake: SparkStore, kind: str
) -> None:
    """With LEGACY a SELECT gave dates of before 1582 some days off, and an UPDATE stored them so."""
    make(sql, kind)
    sql("ALTER TABLE lake.shop.t ADD COLUMNS (day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ)")
    sql("UPDATE lake.shop.t SET day = DATE'1500-01-01', at = TIMESTAMP'1500-01-01 00:00:00', "
        "wall = TIMESTAMP_NTZ'1500-01-01 00:00:00'")  # fmt: skip
    query = "SELECT DISTINCT CAST(day AS STRING), CAST(at AS STRING), CAST(wall AS STRING) FROM {}"
    expected = sql(query.format("lake.shop.t"))
    frame = lake.read("shop.t").selectExpr("CAST(day AS STRING)").distinct()
    with settings(session, LEGACY):
        assert sql(query.format("lake.shop.t")) == expected
        assert [tuple(row) for row in frame.collect()] == [expected[0][:1]]
        sql("UPDATE lake.shop.t SET v = v + 1 WHERE v > 200")
    assert sql(query.format("lake.shop.t")) == expected

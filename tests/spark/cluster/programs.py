"""What tests of a cluster run in its driver. Each function opens the store anew, as programs do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import tablestore
from filestore.delta.checkpoint import write_checkpoint
from filestore.storage.local import LocalStorage
from filestore.storage.objects import ObjectStorage
from tablestore.spark import SparkStore
from tablestore.spark.batch import writing
from tablestore.spark.jobs import sent
from tablestore.spark.opened import identity_options
from tablestore.writing.write_job import TaskOutcome, WriteJob

COLUMNS = "id BIGINT, v STRING"


def session() -> SparkSession:
    """The session of this driver."""
    found = SparkSession.getActiveSession()
    assert found is not None
    return found


@contextmanager
def lake(place: str, database: str | None, options: dict[str, str], commits: str | None = None) -> Iterator[SparkStore]:
    """The tables of a warehouse."""
    with tablestore.connect(place, database=database, storage_options=options or None, commits=commits) as store:
        yield SparkStore(session(), store)


def where_tasks_run() -> list[dict[str, Any]]:
    """What a task of each executor sees of its Python: tasks of a barrier begin when there is a free core for all."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import polars as pl

        import filestore

        for _ in batches:
            pass
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
        found = {
            "python": sys.executable,
            "folder": os.getcwd(),
            "ours": filestore.__file__,
            "polars": pl.__file__,
            "daemon": b" ".join(parent).decode(),
        }
        yield pa.RecordBatch.from_pylist([found])

    spark = session()
    frame = spark.range(0, 2, 1, 2).mapInArrow(
        look, "python string, folder string, ours string, polars string, daemon string", barrier=True
    )
    return [row.asDict() for row in frame.collect()]


def written_and_read(place: str, database: str, options: dict[str, str]) -> dict[str, Any]:
    """Writes and reads a table, by `SparkStore` and by the format's name; returns what was read, and how."""
    with lake(place, database, options) as tables:
        spark, store = tables.spark, tables.store
        store.create_database("shop")
        table = store.create_table("shop.orders", COLUMNS, primary_key=["id"], options={"bucket": "2"})
        tables.write("shop.orders", spark.range(1000).selectExpr("id", "concat('a', id) v"))
        tables.write("shop.orders", spark.range(10).selectExpr("id", "'b' v", "IF(id < 5, '-D', '+I') _kind"))
        scan = tables.read("shop.orders")
        found: dict[str, Any] = {
            "scan": sorted((row.id, row.v) for row in scan.collect()),
            "files": scan.inputFiles(),
            "plan": scan._jdf.queryExecution().executedPlan().toString(),
        }
        named = identity_options(table.opened)
        rows = spark.read.format("tablestore").options(**named).load("shop.orders")
        found["format"] = sorted((row.id, row.v) for row in rows.collect())
        more = spark.range(1000, 1003).selectExpr("id", "'c' v").write.format("tablestore").options(**named)
        more.mode("append").save("shop.orders")
        found["appended"] = tables.read("shop.orders").count()
        return found


def large_version_written(place: str, database: str, options: dict[str, str]) -> dict[str, Any]:
    """Writes into a version whose files are sent as those of a large one; returns its rows, and each executor's files.

    The driver opens it from its checkpoint.
    """
    columns, by = "p INT, id BIGINT, v STRING", ["p"]
    with lake(place, database, options) as tables:
        tables.store.create_database("shop")
        table = tables.store.create_table("shop.parts", columns, primary_key=["p", "id"], partition_by=by)
        table.write([{"p": p, "id": n, "v": "a"} for p in range(20) for n in range(3)])
        write_checkpoint(table.filestore.delta_log, table.filestore.state())
    with lake(place, database, options) as tables, patch.object(sent, "FEW_FILES", 0):
        spark = tables.spark
        for v in "bc":
            rows = spark.range(0, 40, 1, 8).selectExpr("CAST(id % 20 AS INT) p", "id % 4 id", f"'{v}' v")
            tables.write("shop.parts", rows)

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from tablestore.spark.jobs.local_disk import local_disk

            for _ in batches:
                pass
            found = [name for name in os.listdir(local_disk(0)) if name.startswith("tablestore-files-")]
            yield pa.RecordBatch.from_pylist([{"folder": local_disk(0), "names": found}])

        seen = spark.range(0, 2, 1, 2).mapInArrow(look, "folder string, names array<string>", barrier=True).collect()
        rows = tables.read("shop.parts").collect()
        return {"rows": sorted(tuple(row) for row in rows), "disks": {row.folder: row.names for row in seen}}


def streamed(place: str, database: str, options: dict[str, str]) -> dict[str, Any]:
    """Copies a table by streams with checkpoints beside it, compacts the copy; returns what was read."""
    with lake(place, database, options) as tables:
        spark, store = tables.spark, tables.store
        store.create_database("shop")
        table = store.create_table("shop.orders", COLUMNS, primary_key=["id"], options={"bucket": "2"})
        tables.write("shop.orders", spark.range(100).selectExpr("id", "concat('a', id) v"))
        later = {"bucket": "2", "write-mode": "merge-on-read"}
        store.create_table("shop.copy", COLUMNS, primary_key=["id"], options=later)
        store.create_table("shop.named", COLUMNS, primary_key=["id"])
        changes = tables.read_stream("shop.orders", mode="changelog")
        once = {"availableNow": True}
        for _ in range(2):  # the second run finds nothing
            tables.write_stream("shop.copy", changes, checkpoint=f"{place}/checkpoint", trigger=once).awaitTermination()
        named = identity_options(store.table("shop.named").opened)
        for _ in range(2):
            stream = changes.drop("_kind").writeStream.format("tablestore").options(**named)
            stream.option("checkpointLocation", f"{place}/named").trigger(**once).start("shop.named").awaitTermination()
        copy = store.table("shop.copy")
        found: dict[str, Any] = {
            "pending": len(copy.filestore.state().pending),
            "copy": sorted((row.id, row.v) for row in tables.read("shop.copy").collect()),
            "versions": [store.table(name).filestore.state().version for name in ("shop.copy", "shop.named")],
            "named": tables.read("shop.named").count(),
            "files": tables.read("shop.orders$files").count(),
        }
        tables.compact("shop.copy", full=True)
        found["compacted"] = sorted((row.id, row.v) for row in tables.read("shop.copy").collect())
        assert table.examine().healthy
        assert copy.examine().healthy
        return found


def shown() -> dict[str, Any]:
    """Where this application shows itself: its page, its id, the process ids of driver and JVM, its event log."""
    context = session().sparkContext
    jvm = context._jvm
    assert jvm is not None
    return {
        "page": context.uiWebUrl,
        "id": context.applicationId,
        "pids": [os.getpid(), jvm.java.lang.ProcessHandle.current().pid()],
        "events": context.getConf().get("spark.eventLog.dir"),
    }


@dataclass(frozen=True)
class Gate:
    """A point that holds the first who reaches it, until a test that waits for this has done what it wants.

    Attributes:
        folder: On a disk that all processes have.
        phase: The name of the point.
    """

    folder: str
    phase: str

    def pass_by(self, phase: str) -> None:
        """Is called at each point."""
        if phase == self.phase and not os.path.exists(f"{self.folder}/reached"):
            with open(f"{self.folder}/reached", "w") as reached:
                reached.write(str(os.getpid()))
            while not os.path.exists(f"{self.folder}/open"):
                time.sleep(0.01)


@contextmanager
def gated(gate: Gate) -> Iterator[None]:
    """Puts the gate into tasks, around their work, and into the driver, around the creation of a log entry.

    The executors have no module of the tests, so what tasks do is pickled by value.
    """
    own = sys.modules[__name__]
    plain_attempt = writing._attempt

    def attempt(job: WriteJob, batches: Iterable[pa.RecordBatch], number: str) -> TaskOutcome:
        def some() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                gate.pass_by("in")

        gate.pass_by("before")
        outcome = plain_attempt(job, some(), number)
        gate.pass_by("after")
        return outcome

    def passing(plain_write: Callable[[Any, str, bytes], None]) -> Callable[[Any, str, bytes], None]:
        def write_new(storage: Any, path: str, data: bytes) -> None:
            entry = "/_delta_log/" in path and path.endswith(".json")
            if entry:
                gate.pass_by("commit")
            plain_write(storage, path, data)
            if entry:
                gate.pass_by("committed")

        return write_new

    cloudpickle.register_pickle_by_value(own)
    try:
        with ExitStack() as patches:
            patches.enter_context(patch.object(writing, "_attempt", attempt))
            for kind in (LocalStorage, ObjectStorage):
                patches.enter_context(patch.object(kind, "write_new", passing(kind.write_new)))
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(own)


def upserted(place: str, database: str | None, options: dict[str, str], gate: Gate) -> int:
    """An upsert that passes by a gate; returns the version."""
    with lake(place, database, options) as tables, gated(gate):
        rows = tables.spark.range(50, 150).selectExpr("id", "'b' v")
        return tables.write("shop.orders", rows).version


def streamed_from(
    place: str, database: str | None, options: dict[str, str], inbox: str, checkpoint: str, gate: Gate
) -> None:
    """A stream of JSON files into a table, a micro-batch for each, whose batches pass by a gate."""
    with lake(place, database, options) as tables, gated(gate):
        reader = tables.spark.readStream.schema("id BIGINT, v STRING, _kind STRING").option("maxFilesPerTrigger", "1")
        query = tables.write_stream(
            "shop.orders", reader.json(inbox), checkpoint=checkpoint, trigger={"availableNow": True}
        )
        query.awaitTermination()

"""Archives of the classes that Spark and Kafka load, with which their JVMs start in half of the processor time.

A JVM maps such an archive instead of reading, parsing and verifying thousands of classes (class data sharing, JEP 350).
It ignores an archive that does not fit its version or class path, so Spark has two: ``spark`` for programs whose
settings name Delta's jars and ours, and ``sql`` with the classes of these for JVMs that have them in their class path,
as our sessions and servers of SQL do. ``python -m tests.servers.class_archive`` makes what is missing, as `make test`
does first with those that it needs; without archives everything works, and starts later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pyspark

from tablestore import connect
from tablestore.jars import java_path, kafka_jars
from tablestore.spark.settings import catalog_settings, program_settings

__all__ = ["KAFKA", "SPARK", "SQL", "archived"]

SPARK = "spark"
SQL = "sql"
KAFKA = "kafka"
FOLDER = Path(sys.prefix, "class-archives")
JVM_END_SECONDS = 300.0

_HERE = "--here"

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")  # an archive that does not fit is no news


@cache
def archived(name: str) -> Sequence[str]:
    """Returns the JVM's options for the archive of a program; none if it has not been made."""
    path = _path(name)
    return (f"-XX:SharedArchiveFile={path}", *_QUIET) if path is not None and path.exists() else ()


def _path(name: str) -> Path | None:
    """Where an archive belongs: its name changes with the JVM and the jars. None without a JVM."""
    java = java_path()
    if java is None:
        return None
    seen = [str(Path(java).resolve()), *sorted(f"{jar} {jar.stat().st_mtime_ns}" for jar in _jars(name))]
    return FOLDER / f"{name}-{zlib.crc32(chr(10).join(seen).encode()):08x}.jsa"


def _jars(name: str) -> Sequence[Path]:
    if name == KAFKA:
        return kafka_jars()
    others = program_settings()["spark.jars"].split(",") if name == SQL else ()
    return [*(Path(pyspark.__file__).parent / "jars").glob("*.jar"), *map(Path, others)]


def _log(name: str) -> Path:
    return FOLDER / f"{name}.log"


def _begin(name: str) -> subprocess.Popen[bytes] | None:
    """Starts a process that makes an archive, unless it is there or there is no JVM."""
    path = _path(name)
    if path is None or path.exists():
        return None
    print(f"Archiving the classes of {name} for the tests (once, about a minute) ...", flush=True)
    FOLDER.mkdir(exist_ok=True)
    with _log(name).open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", __spec__.name, _HERE, name], stdout=log, stderr=log)


def _make(name: str) -> None:
    """Runs a program whose JVM writes its archive when it ends."""
    path = _path(name)
    assert path is not None
    made = path.with_suffix(f".{os.getpid()}")
    PROGRAMS[name]([f"-XX:ArchiveClassesAtExit={made}", *_QUIET])
    for old in FOLDER.glob(f"{name}-*.jsa"):
        old.unlink()  # of jars that there are no more: it has 200 MB
    made.replace(path)


def _run_kafka(options: Sequence[str]) -> None:
    from tests.servers.kafka import KafkaBroker

    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder), options=options) as broker:
        broker.stop()


def _run_spark(options: Sequence[str]) -> None:
    from tests.servers.spark import java_options

    java = {"spark.driver.extraJavaOptions": java_options(options)}
    _run_statements(java, "orders", "(id BIGINT, name STRING) USING delta")


def _run_sql(options: Sequence[str]) -> None:
    from tests.servers.spark import jars_in_path

    with tempfile.TemporaryDirectory() as folder, connect(f"{folder}/lake") as store:
        store.create_database("shop")
        settings = jars_in_path(options) | catalog_settings({"lake": store.target})
        _run_statements(settings, "lake.shop.orders", "(id BIGINT, name STRING, PRIMARY KEY (id))")


def _run_statements(java: Mapping[str, str], table: str, made: str) -> None:
    from pyspark import SparkContext

    from tests.servers.spark import start_spark

    session = start_spark(java)
    session.sql(f"CREATE TABLE {table} {made}")
    session.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    session.sql(f"UPDATE {table} SET name = 'c' WHERE id = 1")
    session.sql(
        f"MERGE INTO {table} t USING (SELECT 2L AS id, 'd' AS name) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    session.sql(f"SELECT name, count(*) FROM {table} WHERE id = 1 GROUP BY name").collect()
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = session.readStream.table(table).writeStream.option("checkpointLocation", checkpoint)
        stream.trigger(availableNow=True).format("noop").start().awaitTermination()
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    jvm = gateway.proc
    jvm.stdin.close()
    jvm.wait(JVM_END_SECONDS)


PROGRAMS = {KAFKA: _run_kafka, SPARK: _run_spark, SQL: _run_sql}


def main() -> None:
    """Makes the archives of its arguments that are missing, or of all, side by side; or one in this process."""
    if sys.argv[1:2] == [_HERE]:
        _make(sys.argv[2])
        return
    for name, making in [(name, _begin(name)) for name in sys.argv[1:] or PROGRAMS]:
        if making is not None and making.wait() != 0:
            print(f"The classes of {name} were not archived, so tests start later: see {_log(name)}")


if __name__ == "__main__":
    main()

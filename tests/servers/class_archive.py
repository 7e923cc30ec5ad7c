"""Archives of the classes that Spark and Kafka load, with which their JVMs start in two thirds of the processor time.

A JVM maps such an archive instead of reading, parsing and verifying thousands of classes (class data sharing, JEP 350).
It ignores an archive that does not fit its version or class path. ``python -m tests.servers.class_archive`` makes what
is missing, as `make test` does first; without archives everything works, and starts later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pyspark

from tablestore.jars import java_path, kafka_jars

__all__ = ["KAFKA", "SPARK", "archived"]

SPARK = "spark"
KAFKA = "kafka"
FOLDER = Path(sys.prefix, "class-archives")
JVM_END_SECONDS = 300.0

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
    jars = (Path(pyspark.__file__).parent / "jars").glob("*.jar") if name == SPARK else kafka_jars()
    seen = [str(Path(java).resolve()), *sorted(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)]
    return FOLDER / f"{name}-{zlib.crc32(chr(10).join(seen).encode()):08x}.jsa"


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
        return subprocess.Popen([sys.executable, "-m", __spec__.name, name], stdout=log, stderr=log)


def _make(name: str) -> None:
    """Runs a program whose JVM writes its archive when it ends."""
    path = _path(name)
    assert path is not None
    made = path.with_suffix(f".{os.getpid()}")
    PROGRAMS[name]([f"-XX:ArchiveClassesAtExit={made}", *_QUIET])
    made.replace(path)


def _run_kafka(options: Sequence[str]) -> None:
    from tests.servers.kafka import KafkaBroker

    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder), options=options) as broker:
        broker.stop()


def _run_spark(options: Sequence[str]) -> None:
    from pyspark import SparkContext

    from tests.servers.spark import start_spark

    session = start_spark(options)
    with tempfile.TemporaryDirectory() as folder:
        table = f"delta.`{folder}/table`"
        session.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING delta")
        session.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
        session.sql(f"UPDATE {table} SET name = 'c' WHERE id = 1")
        session.sql(f"SELECT name, count(*) FROM {table} WHERE id = 1 GROUP BY name").collect()
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    jvm = gateway.proc
    jvm.stdin.close()
    jvm.wait(JVM_END_SECONDS)


PROGRAMS = {KAFKA: _run_kafka, SPARK: _run_spark}


def main() -> None:
    """Makes the archives that are missing side by side, or the one of an argument in this process."""
    if sys.argv[1:]:
        _make(sys.argv[1])
        return
    for name, making in [(name, _begin(name)) for name in PROGRAMS]:
        if making is not None and making.wait() != 0:
            print(f"The classes of {name} were not archived, so tests start later: see {_log(name)}")


if __name__ == "__main__":
    main()

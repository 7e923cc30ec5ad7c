"""Finds or compiles the jar with the Java side of the SQL catalog.

Wheels and source distributions have it (``deploy/build_backend.py``), and ``make env`` compiles it in a checkout. Where
it lacks, ``python -m tablestore.spark.sql.jar`` compiles it, if there is a Java compiler. It knows its sources by their
digest, since the times of files say little in a checkout or in an archive.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filestore.errors import NotFound, Unavailable

__all__ = ["compile_jar", "has_sql_jar", "is_current", "make_jar", "sql_jar"]

_JVM = Path(__file__).parents[1] / "jvm"
_JAR = _JVM / "tablestore-spark-4.2.jar"
_RELEASE = "17"
# A compiler that ends within seconds is not worth compiling well: measured, it takes two fifths of the processor time.
_QUICK = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
_DIGEST = "tablestore/spark/sources.sha256"


def has_sql_jar() -> bool:
    """Returns whether the jar is there. Without it sessions have everything but catalogs of table stores."""
    return _JAR.exists()


def sql_jar() -> Path:
    """Returns the path of the jar.

    Raises:
        NotFound: ``no-sql-jar``: it was not compiled.
    """
    if not has_sql_jar():
        raise NotFound(
            f"{_JAR.name} is missing, which SQL needs, since there was no Java compiler where this was built: install "
            f"a JDK {_RELEASE} or newer and run `python -m tablestore.spark.sql.jar` (in a checkout `make env`), or "
            "install a wheel that was built with one",
            code="no-sql-jar",
        )
    return _JAR


def is_current() -> bool:
    """Returns whether the jar is there and was compiled from these sources."""
    if not _JAR.exists():
        return False
    with zipfile.ZipFile(_JAR) as jar:
        return _DIGEST in jar.namelist() and jar.read(_DIGEST).decode() == _digest(_sources())


def _sources() -> list[Path]:
    return sorted(_JVM.glob("src/**/*.java"))


def _digest(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.name}\n".encode() + source.read_bytes())
    return digest.hexdigest()


def compile_jar() -> str:
    """Compiles the sources, if the jar was not made from them; returns what it did as a sentence.

    Raises:
        Unavailable: ``no-javac``: there is no Java compiler or no Spark, or the sources do not fit it.
    """
    sources = _sources()
    if is_current():
        _JAR.touch()  # `make` compares times
        return f"{_JAR.name} is up to date."
    if shutil.which("javac") is None:
        raise Unavailable(
            f"There is no javac, so {_JAR.name} is not made, and spark.sql knows no catalog of ours: install a JDK "
            f"{_RELEASE} or newer, and run this again.",
            code="no-javac",
        )
    if (spark := importlib.util.find_spec("pyspark")) is None or spark.origin is None:
        raise Unavailable(
            f"{_JAR.name} is compiled against Spark's own jars, and pyspark is not installed: install it, and run this "
            "again.",
            code="no-javac",
        )
    jars = Path(spark.origin).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        _run("javac", *_QUICK, "-nowarn", "--release", _RELEASE, "-cp", f"{jars}/*", "-d", folder, *map(str, sources))
        (Path(folder) / _DIGEST).write_text(_digest(sources), encoding="utf-8")
        made = Path(folder) / _JAR.name
        _run("jar", "--create", "--file", str(made), "--date", "2026-01-01T00:00:00Z", "-C", folder, "tablestore")
        # a running JVM reads the old jar on: it keeps its file, since the new one gets the name of another file
        beside = _JAR.with_suffix(".new")
        shutil.copyfile(made, beside)
        beside.replace(_JAR)
    return f"Compiled {_JAR.name} from {len(sources)} sources."


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed:\n{done.stderr.strip()}", code="no-javac")


def make_jar() -> None:
    """Compiles the sources as `compile_jar` does. Without a Java compiler it only says what will lack."""
    try:
        print(compile_jar())
    except Unavailable as error:
        if shutil.which("javac") is not None:
            raise
        print(error.message, file=sys.stderr)


if __name__ == "__main__":
    try:
        make_jar()
    except Unavailable as error:
        sys.exit(error.message)

"""Finds or compiles the jar with the Java side of the SQL catalog: wheels have it, and ``make env`` compiles it.

``python -m tablestore.spark.sql.jar`` compiles it, if its sources are newer and there is a Java compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from filestore.errors import NotFound, Unavailable

__all__ = ["compile_jar", "has_sql_jar", "sql_jar"]

_JVM = Path(__file__).parents[1] / "jvm"
_JAR = _JVM / "tablestore-spark-4.2.jar"
_RELEASE = "17"


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
            f"{_JAR.name} is missing, which SQL needs: a checkout makes it with `make env`, where there is a JDK "
            f"{_RELEASE} or newer; every wheel has it",
            code="no-sql-jar",
        )
    return _JAR


def compile_jar() -> str:
    """Compiles the sources, if they are newer than the jar; returns what it did as a sentence.

    Raises:
        Unavailable: ``no-javac``: there is no Java compiler, or the sources do not fit the installed Spark.
    """
    sources = sorted(_JVM.glob("src/**/*.java"))
    if _JAR.exists() and all(source.stat().st_mtime <= _JAR.stat().st_mtime for source in sources):
        return f"{_JAR.name} is up to date."
    if shutil.which("javac") is None:
        raise Unavailable(
            f"There is no javac, so {_JAR.name} is not made, and spark.sql knows no catalog of ours: install a JDK "
            f"{_RELEASE} or newer, and run `make env` again.",
            code="no-javac",
        )
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory() as folder:
        _run("javac", "-nowarn", "--release", _RELEASE, "-cp", f"{jars}/*", "-d", folder, *map(str, sources))
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


if __name__ == "__main__":
    try:
        print(compile_jar())
    except Unavailable as error:
        print(error.message, file=sys.stderr)
        sys.exit(0 if shutil.which("javac") is None else 1)

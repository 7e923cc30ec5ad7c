"""Programs of Spark without a Python driver, which tests start: the spark-sql shell, the Thrift server, beeline."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pyspark

from tablestore.spark.settings import TUNED, program_settings
from tests.servers.spark import SETTINGS, SHORT_LIVED_JVM, jars_in_path

__all__ = ["environment", "has_ended", "listed_settings", "program", "python_daemons", "python_processes"]

# Statements of few rows: without code that is generated and compiled for each.
QUICK = {name: value for name, value in SETTINGS.items() if re.search("codegen|snapshotPartitions", name)}

_HOME = Path(pyspark.__file__).parent


def program(name: str) -> str:
    """Returns the path of a program of Spark's."""
    return str(_HOME / "bin" / name)


def environment() -> dict[str, str]:
    """Returns the environment of such a program."""
    return {**os.environ, **SHORT_LIVED_JVM, "SPARK_HOME": str(_HOME), "PYSPARK_PYTHON": sys.executable}


def listed_settings(catalogs: Mapping[str, str]) -> list[str]:
    """Returns the arguments with which such a program has catalogs, as these settings name them."""
    settings = {**program_settings(), **TUNED, **QUICK, **jars_in_path(), **catalogs}
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.log.level": "OFF"}
    settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.sql.catalogImplementation": "in-memory", "spark.master": "local[2]"}
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def python_processes(jvm: int) -> list[psutil.Process]:
    """Returns the Python processes that answer for a JVM."""
    return [child for child in psutil.Process(jvm).children(recursive=True) if _answers(child)]


def python_daemons(process: int) -> list[psutil.Process]:
    """Returns the processes from which the JVMs among a process and those below it fork Python's, for tasks."""
    return [child for child in psutil.Process(process).children(recursive=True) if _forks_tasks(child)]


def _forks_tasks(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        by_java = parent is not None and parent.name() == "java"
        return by_java and any(part.endswith(".daemon") for part in process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):  # it ended meanwhile
        return False


def _answers(process: psutil.Process) -> bool:
    try:
        return "tablestore.spark.sql.process" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):  # it ended meanwhile
        return False


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, also if nobody has asked for its exit code yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

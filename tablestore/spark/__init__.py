"""Tablestore in Spark: `spark_session` makes a session with Delta in place, `SparkStore` reads and writes its tables.

    session      `spark_session`
    settings     the settings of sessions: Delta, clusters, S3
    archive      `spark_archive`: what executors need, as one file
    store        `SparkStore`
    views        its methods about maintained views
    source       ``format("tablestore")``
    kafka        Kafka tables: reading, writing, streams
    streaming    the changes of managed tables as streams
    batch        DataFrames of managed tables: reads, writes, compactions
    jobs         the runner of all Spark jobs, and its errors
    opened       the table that options of Spark name
    interpreter  which Python Spark starts
    daemon       the process from which Spark forks Python's

Methods of `SparkStore` raise the errors of `filestore.errors`. Where the user's own call of Spark runs code of ours, as
with ``format("tablestore")`` and streaming queries, Spark raises its own exception, and `error_of` finds ours in it.

A program that makes a session of its own imports this package first, even if it needs nothing but the format's name:
Spark looks for ``format("tablestore")`` with the `python3` of the PATH otherwise, which may lack our packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tablestore.spark.interpreter import look_up_with_this_python

if TYPE_CHECKING:
    from tablestore.spark.archive import spark_archive
    from tablestore.spark.jobs.errors import error_of
    from tablestore.spark.session import spark_session
    from tablestore.spark.store import SparkStore

__all__ = ["SparkStore", "error_of", "spark_archive", "spark_session"]

# Each of Spark's workers imports this package for modules below it, and needs none of these.
_LAZY = {
    "SparkStore": "tablestore.spark.store",
    "error_of": "tablestore.spark.jobs.errors",
    "spark_archive": "tablestore.spark.archive",
    "spark_session": "tablestore.spark.session",
}


look_up_with_this_python()


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)

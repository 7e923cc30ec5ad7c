"""Tablestore in Spark: `spark_session` makes a session that has what it takes, `SparkStore` is the door.

A program that makes a session of its own imports this package first, even if it needs nothing but the format's name:
Spark looks for ``format("tablestore")`` with the `python3` of the PATH otherwise, which may lack our packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tablestore.spark.interpreter import look_up_with_this_python

if TYPE_CHECKING:
    from tablestore.spark.session import spark_session
    from tablestore.spark.store import SparkStore

__all__ = ["SparkStore", "spark_session"]

# Each of Spark's workers imports this package to reach `tablestore.spark.write` or `.source`, and needs no more.
_LAZY = {"SparkStore": "tablestore.spark.store", "spark_session": "tablestore.spark.session"}


look_up_with_this_python()


def __getattr__(name: str) -> Any:
    """Loads the door when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)

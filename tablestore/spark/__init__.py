"""Tablestore in Spark: `spark_session` makes a session that has what it takes, `SparkStore` is the door."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tablestore.spark.session import spark_session
    from tablestore.spark.store import SparkStore

__all__ = ["SparkStore", "spark_session"]

# Each of Spark's workers imports this package to reach `tablestore.spark.write` or `.source`, and needs no more.
_LAZY = {"SparkStore": "tablestore.spark.store", "spark_session": "tablestore.spark.session"}


def __getattr__(name: str) -> Any:
    """Loads the door when it is first used (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)

"""The engines that can be chosen. It imports none of them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Engine"]


class Engine(StrEnum):
    """The engine that runs a statement; ``auto``: polars if it can with the same meaning, else Spark."""

    AUTO = "auto"
    POLARS = "polars"
    SPARK = "spark"

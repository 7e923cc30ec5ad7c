"""Sends outcomes of tasks to the driver as soon as they end, by an accumulator of Spark that hands each to its job.

`collect` returns results only when all tasks have ended, and none at all if one has failed. The driver has to know both
earlier: an error, to stop the other tasks; and what was written, to remove it. Spark adds up an accumulator when a
task ends well, and the task of a result once only, however often it was tried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

__all__ = ["Listener", "Report", "Reporter", "Reports"]


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a task.

    Attributes:
        tag: Its job's.
        outcome: A pickled value.
        failed: Whether that is an error.
    """

    tag: str
    outcome: bytes
    failed: bool


Listener: TypeAlias = Callable[[Report], None]
"""Takes reports in a thread of Spark's, which must not be kept waiting, and must not fail."""


class Reports:
    """The reports of one job's tasks, from its start to its end; nothing without a context, as with Spark Connect.

    Attributes:
        tag: The job's, by which it is cancelled; no other has it.
        reporter: For the tasks; picklable. None without a context.
    """

    _numbers = count()

    def __init__(self, context: SparkContext | None, listener: Listener) -> None:
        self.tag = f"tablestore-{next(self._numbers)}"
        self._listener = listener
        self.reporter = None if context is None else Reporter(self.tag, _accumulator(context))

    def __enter__(self) -> Reports:
        _LISTENERS[self.tag] = self._listener
        return self

    def __exit__(self, *_: object) -> None:
        """Reports that arrive from here on are dropped."""
        _LISTENERS.pop(self.tag, None)


class Reporter:
    """A job's end in its tasks."""

    def __init__(self, tag: str, accumulator: Accumulator[list[Report]]) -> None:
        self._tag = tag
        self._accumulator = accumulator

    def __call__(self, outcome: bytes, *, failed: bool) -> None:
        """Sends the task's outcome to the driver, which gets it when the task has ended."""
        self._accumulator.add([Report(self._tag, outcome, failed)])


class _Inbox(AccumulatorParam[list[Report]]):
    """The driver's end: hands reports on and keeps none, since Spark never forgets an accumulator."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802  # Spark's name
        for report in value2:
            if (listener := _LISTENERS.get(report.tag)) is not None:
                listener(report)
        return []

    def __reduce__(self) -> tuple[object, ...]:
        return (_Outbox, ())


class _Outbox(AccumulatorParam[list[Report]]):
    """A task's end: keeps reports until the task ends."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802  # Spark's name
        return [*value1, *value2]


_LISTENERS: dict[str, Listener] = {}
_ACCUMULATORS: WeakKeyDictionary[SparkContext, Accumulator[list[Report]]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def _accumulator(context: SparkContext) -> Accumulator[list[Report]]:
    """One for all jobs of a context."""
    with _LOCK:
        found = _ACCUMULATORS.get(context)
        if found is None:
            found = _ACCUMULATORS[context] = context.accumulator([], _Inbox())
        return found

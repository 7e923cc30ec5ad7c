"""A Spark driver in a process of its own, which runs functions that a test sends it.

A process has one Spark session, its JVM has one environment, and tests of a cluster want another session and other
variables than the tests beside them. So their driver is a process that is started for them, in the way of
`concurrent.futures`: functions are named in a module that it can import; arguments and results are pickled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from pyspark.errors import PySparkException

from tests.servers.system import Startable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkDriver"]

Params = ParamSpec("Params")
Result = TypeVar("Result")
DEADLINE_S = 600.0


class SparkDriver(Startable):
    """The process, and its session.

    Args:
        log: The file that gets all that the process and its JVM print.
        settings: Settings of Spark; small ones for tests are added.
        environment: Variables that it has besides; None removes one.
        how: Other arguments of `spark_session`.
    """

    def __init__(
        self,
        log: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str | None] | None = None,
        **how: Any,
    ) -> None:
        self.log = log
        self._arguments = (str(log), dict(settings), dict(environment or {}), how)
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=self._arguments)
        self._pool.submit(_nothing).result(DEADLINE_S)
        return self

    def stop(self) -> None:
        """Stops the session, and ends the process."""
        if self._pool is not None:
            self._pool.submit(_end).result(DEADLINE_S)
            self._pool.shutdown()
            self._pool = None

    def begin(
        self, function: Callable[Params, Result], /, *args: Params.args, **named: Params.kwargs
    ) -> Future[Result]:
        """Begins a function there. It finds the session as the one that is active."""
        assert self._pool is not None, "the driver runs"
        return self._pool.submit(_run, function, args, named)

    def run(self, function: Callable[Params, Result], /, *args: Params.args, **named: Params.kwargs) -> Result:
        """Runs a function there to its end, and returns its result or raises its error."""
        return self.begin(function, *args, **named).result(DEADLINE_S)


def _begin(log: str, settings: dict[str, str], environment: dict[str, str | None], how: dict[str, Any]) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(output, standard)
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    from tablestore.spark import spark_session  # the variables are for all that is imported here

    _session.append(spark_session("tests", settings, **how))
    print("the session runs", file=sys.stderr)


def _run(function: Callable[..., Result], args: tuple[Any, ...], named: dict[str, Any]) -> Result:
    try:
        return function(*args, **named)
    except PySparkException as error:  # it refers to Java's, and cannot be pickled
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


_session: list[SparkSession] = []


def _nothing() -> None:
    """Is done when the session runs."""
    assert _session


def _end() -> None:
    _session[0].stop()

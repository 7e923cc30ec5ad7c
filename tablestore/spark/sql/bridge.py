"""Answers the requests of the Java side (``tablestore.spark.Python``).

Java waits in the thread of Spark that needs the answer, and Python's answer runs in a thread that belongs to it: what
it calls in Java runs in that same thread, with that session's settings.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from filestore.errors import TableStoreError
from tablestore.spark.batch.scans import handled
from tablestore.spark.jobs.errors import failure_of
from tablestore.spark.jobs.java_classes import our_class
from tablestore.spark.sql.dialect import rewritten
from tablestore.spark.sql.names import Names
from tablestore.spark.sql.places import Place, Places
from tablestore.spark.sql.requests import Request
from tablestore.spark.sql.rows import JOINS, READS, WRITES
from tablestore.spark.sql.statements import ANSWERS, call
from tablestore.spark.store import SparkStore

__all__ = ["start_bridge"]

logger = logging.getLogger(__name__)


class Bridge:
    """The one object of this process that Java calls."""

    class Java:
        """Says to Py4J what it is."""

        implements = ("tablestore.spark.Python",)

    def __init__(self, context: SparkContext, *, sessions_of_others: bool) -> None:
        self._context = context
        self._sessions_of_others = sessions_of_others
        self._places = Places()

    def answer(self, request: str) -> str:
        """Answers a request that needs no session."""
        asked: Request = json.loads(request)
        if asked["operation"] == "rewrite":  # it is about a statement, and needs no store
            ours = frozenset(asked["catalogs"])
            others, views = frozenset(asked["others"]) - ours, frozenset(asked["views"])
            names = Names(ours, asked["catalog"], asked["database"], others, views)
            return _as_text(_outcome(lambda: rewritten(asked["statement"], names), asked))
        if "handle" in asked:
            return _as_text(_outcome(lambda: handled(asked), asked))
        return _as_text(
            _outcome(lambda: ANSWERS[asked["operation"]](self._places.store(self._place(asked)), asked), asked)
        )

    def take(self, request: str, session: JavaObject, subject: JavaObject) -> str | JavaObject:
        """Writes the rows of a Dataset, or runs a procedure (`subject` is None).

        It returns the exception of Spark that ended the work, so that Java throws that.
        """
        asked: Request = json.loads(request)

        def work() -> Any:
            store = self._in(asked, session)
            if asked["operation"] == "call":
                return call(store, asked)
            return WRITES[asked["operation"]](store, asked, DataFrame(subject, store.spark))

        return _as_text(_outcome(work, asked))

    def read(self, request: str, session: JavaObject, subject: JavaObject | None) -> str | JavaObject:
        """Returns a Dataset, or an error. `subject` is the Dataset that is joined, if it is a join."""
        asked: Request = json.loads(request)

        def work() -> DataFrame:
            store = self._in(asked, session)
            if subject is None:
                return READS[asked["operation"]](store, asked)
            return JOINS[asked["operation"]](store, asked, DataFrame(subject, store.spark))

        found = _outcome(work, asked)
        return found["value"]._jdf if isinstance(found, dict) and "value" in found else _as_text(found)

    def _in(self, request: Request, session: JavaObject) -> SparkStore:
        return self._places.in_session(
            self._place(request), session.sessionUUID(), SparkSession(self._context, session, {})
        )

    def _place(self, request: Request) -> Place:
        trusted = request["by_program"] or not self._sessions_of_others
        return Place.of(request["catalog"], request["settings"], trusted=trusted)

    def close(self) -> None:
        """Closes the stores."""
        self._places.close()


def _outcome(work: Callable[[], Any], request: Request) -> dict[str, Any] | JavaObject:
    """Does the work, and returns ``{"value": …}``, ``{"error": …}``, or the exception of Java that was its cause."""
    try:
        return {"value": work()}
    except TableStoreError as error:
        return _described(error, request)
    except Exception as error:
        if (ours := failure_of(error)) is not None:
            return _described(ours, request)
        if (thrown := _thrown(error)) is not None:
            return thrown
        logger.exception("request %s of catalog %s", request["operation"], request.get("catalog"))
        return _described(TableStoreError(f"{type(error).__name__}: {error}", code="internal"), request)


def _described(error: TableStoreError, request: Request) -> dict[str, Any]:
    arguments = request.get("arguments", {})  # of a procedure; one about a database has no table
    database = (arguments.get("database") or "") if arguments.get("table") is None else ""
    named = {"database": request.get("database", database), "table": request.get("table", "")}
    return {"error": {"code": error.code, "message": error.message, **named}}


def _thrown(error: Exception) -> JavaObject | None:
    """The exception of Java behind one of PySpark."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    if isinstance(error, CapturedException):
        origin = error._origin
        return origin if isinstance(origin, JavaObject) else getattr(origin, "java_exception", None)
    return None


def _as_text(answer: dict[str, Any] | JavaObject) -> str | JavaObject:
    return json.dumps(answer) if isinstance(answer, dict) else answer


_bridges: dict[SparkContext, Bridge] = {}
"""The bridge of the running context. Java answers to the one that was registered last."""


def start_bridge(context: SparkContext, *, sessions_of_others: bool = False) -> None:
    """Makes this process answer the Java side of its context; does nothing if that lacks our jar.

    Args:
        context: The context.
        sessions_of_others: Whether others have sessions in it, as in a Thrift server: they get none of the process's
            secrets by catalogs that they name themselves.
    """
    if context in _bridges:
        return
    side, gateway = our_class(context, "PythonSide"), context._gateway
    if side is None:
        return
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    for former in _bridges.values():
        former.close()
    _bridges.clear()
    _bridges[context] = Bridge(context, sessions_of_others=sessions_of_others)
    side.register(_bridges[context])

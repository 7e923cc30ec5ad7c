"""The sessions in which views are computed: with the settings that a view keeps, and with no others.

A view keeps what Spark keeps with a view of its own: each setting of the session that created it, but for those that
say how a query is computed and not what it results in. The session that refreshes it has no say in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from filestore.errors import InvalidRequest

__all__ = ["in_view_session", "view_settings"]

T = TypeVar("T")

_ALWAYS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
"""Settings whose defaults depend on the machine."""
_HOW = (
    # those that Spark leaves out for its own views
    "spark.sql.adaptive.",
    "spark.sql.codegen.",
    "spark.sql.execution.",
    "spark.sql.hive.",
    "spark.sql.maven.",
    "spark.sql.optimizer.",
    "spark.sql.shuffle",
    "spark.sql.view.maxNestedViewDepth",
    # of machines, and of the size of rows today
    "spark.sql.artifact.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.bucketing.",
    "spark.sql.cartesianProductExec.",
    "spark.sql.cbo.",
    "spark.sql.columnVector.",
    "spark.sql.defaultCacheStorageLevel",
    "spark.sql.defaultSizeInBytes",
    "spark.sql.files.max",
    "spark.sql.files.min",
    "spark.sql.files.openCostInBytes",
    "spark.sql.inMemory",
    "spark.sql.join.",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.limit.",
    "spark.sql.maxBroadcastTableSize",
    "spark.sql.maxConcurrentOutputFileWriters",
    "spark.sql.maxSinglePartitionBytes",
    "spark.sql.sessionWindow.",
    "spark.sql.sort.",
    "spark.sql.sortMergeJoinExec.",
    "spark.sql.statistics.",
    "spark.sql.windowExec.",
    # of what is around a query
    "spark.sql.catalog.",
    "spark.sql.cli.",
    "spark.sql.debug.",
    "spark.sql.parquet.fieldId.",  # Delta sets them in each session
    "spark.sql.pipelines.",
    "spark.sql.planChangeLog.",
    "spark.sql.pyspark.",
    "spark.sql.redaction.",
    "spark.sql.repl.",
    "spark.sql.sources.",
    "spark.sql.streaming.",
    "spark.sql.thriftServer.",
    "spark.sql.thriftserver.",
    "spark.sql.ui.",
)
"""The beginnings of the names of settings that the session has which refreshes a view."""
_COUNTS = "spark.sql.optimizer.decorrelate"
"""The settings of the optimizer that change results: with them counts are as wrong as in earlier versions of Spark."""
_OURS = {
    "spark.sql.datetime.java8API.enabled": "true",  # java.sql.Date lacks ten days of 1582
    "spark.sql.defaultCatalog": "spark_catalog",  # so a name of a function means the same everywhere
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",  # a view that lacks rows would be taken for right
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",  # else few keys in memory are 200 tasks
    "spark.sql.variable.substitute": "false",  # ${…} in the text of a query would be what each session has
}
"""Settings that all these sessions have."""


def view_settings(spark: SparkSession) -> dict[str, str]:
    """Returns the settings of a session on which the result of a query depends; a view that it creates keeps them."""
    given = spark.conf.getAll.items()
    found = {name: value for name, value in given if _is_kept(name) and spark.conf.isModifiable(name)}
    return found | {name: str(spark.conf.get(name)) for name in _ALWAYS}


def in_view_session(spark: SparkSession, settings: Mapping[str, str], work: Callable[[SparkSession], T]) -> T:
    """Does work in a session of its own, with the settings of a view; that of the caller stays as it is.

    In a procedure of SQL the work is a part of Spark's analysis of the statement. There the settings of the session
    that has given the statement hold for all that the thread parses, plans and casts, in any session: so it is not
    enough to use another one. Spark's own views have the same need, and `SQLConf.withExistingConf` is how it meets it.

    Args:
        spark: The caller's session.
        settings: The settings that the view keeps.
        work: Gets the session.

    Raises:
        InvalidRequest: ``view-setting``: this Spark does not have such a setting, or not such a value.
    """
    session = _session(spark, settings)
    run = _Run(lambda: work(session))
    jvm = spark._jvm
    assert jvm is not None
    ensure_callback_server_started(spark._sc._gateway)  # type: ignore[no-untyped-call]
    with _active(session):
        jvm.org.apache.spark.sql.internal.SQLConf.withExistingConf(session._jsparkSession.sessionState().conf(), run)
    return run.result()


class _Run(Generic[T]):
    """Work that Java calls. Its end is kept: no exception passes through Java."""

    class Java:
        """Says to Py4J what it is."""

        implements = ("scala.Function0",)

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._found: list[T] = []
        self._raised: BaseException | None = None

    def apply(self) -> None:
        assert self._work is not None
        try:
            self._found.append(self._work())
        except BaseException as error:  # noqa: BLE001  # it is raised again, and Ctrl-C with it
            self._raised = error
        self._work = None  # Java keeps this object until its next collection

    def result(self) -> T:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        [found] = self._found
        self._found = []
        return found


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Makes a session the thread's active one; afterwards it is that which was it before."""
    jvm = session._jvm
    assert jvm is not None
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    in_python, in_java = SparkSession._activeSession, sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = in_python
        if in_java.isDefined():
            sessions.setActiveSession(in_java.get())
        else:
            sessions.clearActiveSession()


def _session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Returns a session with the settings of a view: names of tables and settings there are nobody else's.

    It is no clone of the session: measured, Delta's own planning then finds the files of each query, by jobs.
    """
    session = spark.newSession()
    known = session.conf.getAll
    for name in known:
        if _is_kept(name) and session.conf.isModifiable(name):
            session.conf.unset(name)  # those of the program that refreshes it are not the view's
    for name, value in spark.conf.getAll.items():
        if known.get(name) != value and not _is_kept(name) and session.conf.isModifiable(name):
            session.conf.set(name, value)
    for name, value in settings.items():
        if not session.conf.isModifiable(name):
            raise _unknown(name, value, "this version of Spark has no such setting")
        try:
            session.conf.set(name, value)
        except (PySparkException, Py4JJavaError) as error:
            raise _unknown(name, value, str(error).strip().splitlines()[0]) from error
    for name, value in _OURS.items():
        session.conf.set(name, value)
    return session


def _is_kept(name: str) -> bool:
    if not name.startswith("spark.sql.") or name in _OURS:
        return False
    return not name.startswith(_HOW) or name.startswith(_COUNTS)


def _unknown(name: str, value: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the view is computed with {name} = {value} (its option view.setting.{name}), which cannot be set: {why}. "
        "Refresh it with the version of Spark that created it, or drop it and create it again",
        code="view-setting",
    )

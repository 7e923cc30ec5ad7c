"""`Engines`: what computes the rows of views: this process where it knows how and has the room, else Spark.

A join by a primary key needs no room: it is computed bucket by bucket, whatever size its tables have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from filestore.errors import InvalidRequest, TableStoreError, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from tablestore.local_sql.refusal import NotLocalError, UnknownColumnError
from tablestore.views.engines.key_joins import compare_join, is_key_join, schema_of_join, write_join
from tablestore.views.engines.local_engine import LocalQueries
from tablestore.views.engines.query_work import QueryWork, RowCounts
from tablestore.views.tasks import Tasks
from tablestore.writing.write_job import TaskOutcome, WriteJob, WriteRunner

__all__ = ["Engine", "Engines", "ViewRunner"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LOCAL = LocalQueries()
_NO_ROOM = "view.local-memory is 0"


class Engine(Protocol):
    """Computes rows of any query: Spark."""

    @property
    def tasks(self) -> Tasks:
        """The place where tasks run that Python computes."""

    def schema(self, work: QueryWork) -> Schema:
        """Returns the columns of the query's result."""

    def rows(self, work: QueryWork, definition: TableDefinition) -> pa.Table:
        """Computes all rows of the query's result, with the columns of a table; raises `NotLocalError` for too many."""

    def runner(self, work: QueryWork, definition: TableDefinition) -> WriteRunner:
        """Returns what writes the rows of a refresh."""

    def compare(self, work: QueryWork) -> RowCounts:
        """Compares stored rows with the query's result, all or a few."""


@dataclass(frozen=True)
class Engines:
    """Computes rows where that is known to be right, and fastest.

    Attributes:
        spark: Spark; None in a process without it.
    """

    spark: Engine | None = None

    @property
    def tasks(self) -> Tasks:
        """The place where tasks run that Python computes."""
        return Tasks() if self.spark is None else self.spark.tasks

    def why_spark(self, work: QueryWork, most: int) -> str | None:
        """Returns why Spark computes a query, as a clause; None if this process does, as long as the rows are few.

        Args:
            work: The work.
            most: The bytes of rows that this process may read for it.
        """
        if is_key_join(work):
            return None
        if not most:
            return _NO_ROOM
        try:
            _LOCAL.require(work)
        except NotLocalError as error:
            return str(error)
        return None

    def schema(self, work: QueryWork) -> Schema:
        """Returns the columns of a query's result.

        Raises:
            InvalidRequest: ``view-query``: Spark refuses the query.
            Unsupported: ``needs-spark``, or ``view-query``: its result does not follow from the rows of its tables.
        """
        if is_key_join(work):
            return schema_of_join(work)
        return self.first_here(work, 1, lambda: _LOCAL.schema(work), lambda spark: spark.schema(work))

    def created_schema(self, work: QueryWork) -> Schema:
        """Returns the columns of a view that is created. Where there is Spark it has to accept the query.

        Raises as `schema`.
        """
        return self.schema(work) if self.spark is None or is_key_join(work) else self.spark.schema(work)

    def may_compare(self, work: QueryWork, most: int) -> bool:
        """Returns whether Spark computes a query, and all rows can be compared here with the stored ones.

        Args:
            work: The work.
            most: The bytes of rows that this process may read for it.
        """
        if self.spark is None or not most or self.why_spark(work, most) is None:
            return False
        try:
            _LOCAL.require_comparison(work)
        except NotLocalError:
            return False
        return True

    def runner(self, work: QueryWork, definition: TableDefinition, *, compares_here: bool) -> ViewRunner:
        """Returns what writes the rows of a refresh; it raises as `schema`, and if a row cannot be computed.

        Args:
            work: The work.
            definition: The definition of the view's table.
            compares_here: Whether Spark computes all rows, and this process compares them, if both have the room.
        """
        return ViewRunner(self, work, definition, compares_here)

    def compare(self, work: QueryWork, most: int) -> RowCounts:
        """Compares stored rows with the query's result, all or a few."""
        if is_key_join(work) and not work.samples:
            return compare_join(work, self.tasks)
        return self.first_here(work, most, lambda: _LOCAL.compare(work, most), lambda spark: spark.compare(work))

    def first_here(self, work: QueryWork, most: int, here: Callable[[], T], there: Callable[[Engine], T]) -> T:
        """Does something in this process, and in Spark if that is not possible here; raises ``needs-spark``."""
        why = _NO_ROOM
        if most:
            try:
                return here()
            except NotLocalError as error:
                if self.spark is None and isinstance(error, UnknownColumnError):
                    raise InvalidRequest(f"the query cannot be computed: {error}", code="view-query") from error
                why = str(error)
                logger.debug("%s is computed by Spark: %s", work.query.text, why)
        if self.spark is None:
            raise needs_spark(work.output or "the view", why)
        return there(self.spark)


class ViewRunner:
    """Writes the rows of a refresh (`tablestore.writing.write_job.WriteRunner`); for arguments see `Engines.runner`.

    Attributes:
        by_spark: Whether Spark has computed the rows.
        compared: Whether these were all rows, which this process has compared.
    """

    def __init__(self, engines: Engines, work: QueryWork, definition: TableDefinition, compares_here: bool) -> None:
        self._engines, self._work, self._definition = engines, work, definition
        self._compares_here = compares_here
        self.by_spark = self.compared = False

    def __call__(self, job: WriteJob) -> Sequence[TaskOutcome]:
        """Computes the rows, and writes them."""
        work, most = self._work, self._definition.options["view.local-memory"]
        self.by_spark = self.compared = False  # a write may begin again
        if is_key_join(work):
            return write_join(work, self._engines.tasks, job)
        return self._engines.first_here(
            work, most, lambda: _LOCAL.write(work, most, job), lambda spark: self._by_spark(spark, most, job)
        )

    def _by_spark(self, spark: Engine, most: int, job: WriteJob) -> Sequence[TaskOutcome]:
        self.by_spark = True
        if self._compares_here:
            try:
                done = _LOCAL.write_computed(self._work, most, job, lambda: spark.rows(self._work, self._definition))
            except NotLocalError as error:
                logger.debug("rows of %s are compared by Spark: %s", self._work.query.text, error)
            else:
                self.compared = True
                return done
        return spark.runner(self._work, self._definition)(job)


def needs_spark(name: str, why: str) -> TableStoreError:
    """Returns the error for a view that only Spark can compute."""
    return Unsupported(
        f"the rows of {name} are computed by Spark, since {why}: open it with tablestore.spark.SparkStore, or use "
        "REFRESH MATERIALIZED VIEW or 'tablestore refresh'",
        code="needs-spark",
    )

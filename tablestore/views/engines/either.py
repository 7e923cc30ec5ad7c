"""`Engines`: what computes the rows of views: this process where it knows how and has the room, else Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from filestore.errors import TableStoreError, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from tablestore.local_sql.refusal import NotLocalError
from tablestore.views.engines.local_engine import LocalQueries
from tablestore.views.engines.query_work import QueryWork, RowCounts
from tablestore.views.engines.tasks import Tasks
from tablestore.writing.write_job import TaskOutcome, WriteJob, WriteRunner

__all__ = ["Engine", "Engines"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LOCAL = LocalQueries()


class Engine(Protocol):
    """Computes rows of any query: Spark."""

    @property
    def tasks(self) -> Tasks:
        """The place where tasks run that Python computes."""

    def schema(self, work: QueryWork) -> Schema:
        """Returns the columns of the query's result."""

    def runner(self, work: QueryWork, definition: TableDefinition) -> WriteRunner:
        """Returns what writes the rows of a refresh."""

    def compare(self, work: QueryWork) -> RowCounts:
        """Compares stored rows with the query's result."""


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
        if not most:
            return "view.local-memory is 0"
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
        return self._first_here(work, 1, lambda: _LOCAL.schema(work), lambda spark: spark.schema(work))

    def created_schema(self, work: QueryWork) -> Schema:
        """Returns the columns of a view that is created. Where there is Spark it has to accept the query.

        Raises as `schema`.
        """
        return self.schema(work) if self.spark is None else self.spark.schema(work)

    def runner(self, work: QueryWork, definition: TableDefinition) -> WriteRunner:
        """Returns what writes the rows of a refresh; it raises as `schema`, and if a row cannot be computed."""
        most = definition.options["view.local-memory"]

        def run(job: WriteJob) -> Sequence[TaskOutcome]:
            return self._first_here(
                work,
                most,
                lambda: _LOCAL.write(work, most, job),
                lambda spark: spark.runner(work, definition)(job),
            )

        return run

    def compare(self, work: QueryWork, most: int) -> RowCounts:
        """Compares stored rows with the query's result."""
        return self._first_here(work, most, lambda: _LOCAL.compare(work, most), lambda spark: spark.compare(work))

    def _first_here(self, work: QueryWork, most: int, here: Callable[[], T], there: Callable[[Engine], T]) -> T:
        why = "view.local-memory is 0"
        if most:
            try:
                return here()
            except NotLocalError as error:
                why = str(error)
                logger.debug("%s is computed by Spark: %s", work.query.text, why)
        if self.spark is None:
            raise needs_spark(work.output or "the view", why)
        return there(self.spark)


def needs_spark(name: str, why: str) -> TableStoreError:
    """Returns the error for a view that only Spark can compute."""
    return Unsupported(
        f"the rows of {name} are computed by Spark, since {why}: open it with tablestore.spark.SparkStore, or use "
        "REFRESH MATERIALIZED VIEW or 'tablestore refresh'",
        code="needs-spark",
    )

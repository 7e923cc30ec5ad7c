"""Keeps joins by a primary key: their rows are computed bucket by bucket by the readers of Python (decision 154).

Tasks run in threads of this process, or in Spark. The memory that they take does not depend on the size of a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from tablestore.views.engines.query_work import QueryWork, RowCounts
from tablestore.views.joins.join_work import Input, JoinWork
from tablestore.views.plan.join_query import JoinQuery
from tablestore.views.plan.join_table import output_schema
from tablestore.views.plan.view_plan import Incremental
from tablestore.views.tasks import Tasks
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["compare_join", "is_key_join", "schema_of_join", "write_join"]


def is_key_join(work: QueryWork) -> bool:
    """Returns whether work is that of a join which is kept bucket by bucket."""
    return isinstance(work.plan, Incremental) and work.plan.join is not None


def schema_of_join(work: QueryWork) -> Schema:
    """Returns the columns of the result."""
    query = _query(work)
    return output_schema(query, _definition(work, query.left), _definition(work, query.right))


def write_join(work: QueryWork, tasks: Tasks, job: WriteJob) -> Sequence[TaskOutcome]:
    """Joins the rows on which changes have an effect, in the buckets in which there are some, and writes them."""
    return _join(work, tasks, compares=not work.replaces)(job)


def compare_join(work: QueryWork, tasks: Tasks) -> RowCounts:
    """Compares the stored rows of each bucket with the join."""
    join = _join(work, tasks, compares=True)
    parts = [part.compared() for part in join.of_buckets(range(join.output.definition.buckets))]
    different = sum(part.different or abs(part.stored - part.results) for part in parts)
    return RowCounts(different, sum(part.results for part in parts), sum(part.stored for part in parts))


def _query(work: QueryWork) -> JoinQuery:
    assert isinstance(work.plan, Incremental)
    assert work.plan.join is not None
    return work.plan.join


def _definition(work: QueryWork, name: str) -> TableDefinition:
    return work.state(name, work.until[name]).definition


def _join(work: QueryWork, tasks: Tasks, *, compares: bool) -> JoinWork:
    query, output = _query(work), work.state(work.output, work.version)
    stored = work.tables[work.output].filestore if compares else None
    return JoinWork(query, _input(work, query.left), _input(work, query.right), output, stored, tasks.run)


def _input(work: QueryWork, name: str) -> Input:
    since = None if work.since is None else work.state(name, work.since[name])
    return Input(work.tables[name].filestore, work.state(name, work.until[name]), since)

"""`JoinWork`: plans the refresh of a join bucket by bucket, and runs it as the tasks of one write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from filestore.delta.state import TableState
from filestore.delta.totals import FileTotals
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.table import FileStore
from tablestore.reading.keyed_rows import keyed_rows
from tablestore.reading.version_changes import Changes, changes_between
from tablestore.views.joins.bucket_work import BucketWork, LeftRows
from tablestore.views.joins.changed_keys import changed_keys
from tablestore.views.plan.join_query import JoinQuery
from tablestore.views.tasks import WorkRunner
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["Input", "JoinWork"]

_MOST_KEYS = 1 << 20
"""The most changed keys of the right table that are searched in the left one: with more, all its rows are joined."""


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a view reads.

    Attributes:
        store: The table.
        until: The version of which the view is the result afterwards.
        since: The version of which it is the result before; None to compute all rows again.
    """

    store: FileStore
    until: TableState
    since: TableState | None

    @property
    def files(self) -> TableFiles:
        """The table's files with the definition of the later version."""
        return self.store.table_files(self.until)

    def changes(self, columns: Sequence[str]) -> Changes | None:
        """Plans the reading of what changed in some columns; None if all rows are to be computed again."""
        return None if self.since is None else changes_between(self.store, self.since, self.until, columns)


@dataclass(frozen=True, slots=True)
class JoinWork:
    """Runs a refresh as a write (`tablestore.writing.write_job.WriteRunner`).

    Attributes:
        query: The query of the view.
        left: The left table.
        right: The right table.
        output: The version of the view's table to which the result is compared.
        stored: The view's table; None for a refresh that replaces all rows.
        run: Runs the work of the buckets.
    """

    query: JoinQuery
    left: Input
    right: Input
    output: TableState
    stored: FileStore | None
    run: WorkRunner

    def __call__(self, job: WriteJob) -> Sequence[TaskOutcome]:
        """Runs the work of all buckets in which the result may change."""
        work = self.work()
        return self.run(replace(job, skip_unchanged=self.stored is not None), work) if work else []

    def work(self) -> list[BucketWork]:
        """Plans the work. It reads metadata, and the keys of the right table that have changed."""
        changes, keys = self.left.changes(self._columns), self._right_keys()
        if changes is None:
            keys = None
        return list(self._parts(_buckets(self.left.until, changes, keys), changes, keys))

    def of_buckets(self, buckets: Iterable[int]) -> Iterator[BucketWork]:
        """Plans work that computes all rows of some buckets."""
        return self._parts(buckets, None, None)

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.left.until.definition.primary_key, *self.query.left_columns]))

    def _parts(
        self, buckets: Iterable[int], changes: Changes | None, keys: pl.DataFrame | None
    ) -> Iterator[BucketWork]:
        stored = None if self.stored is None else self.stored.table_files(self.output)
        right = keyed_rows(self.right.files, self.right.until, self.query.right_columns)
        for bucket in buckets:
            yield BucketWork(
                self.query,
                bucket,
                None if changes is None else changes.of_bucket(bucket),
                LeftRows(self.left.files, _of_bucket(self.left.until, bucket), self._columns, keys),
                right,
                _of_bucket(self.output, bucket),
                stored,
            )

    def _right_keys(self) -> pl.DataFrame | None:
        """Reads the keys of the right table whose rows have changed; None if they are too many, or unknown."""
        changes = self.right.changes(self.query.right_columns)
        return None if changes is None else changed_keys(changes, _MOST_KEYS)


def _buckets(left: TableState, changes: Changes | None, keys: pl.DataFrame | None) -> list[int]:
    """Returns the buckets in which rows of the result may change."""
    changed = set() if changes is None else {difference.slot.bucket for difference in changes.slots}
    if keys is None or keys.height:
        changed |= left.files.buckets | left.pending.buckets
    return sorted(changed)


def _of_bucket(state: TableState, bucket: int) -> TableState:
    """Returns the state with the files of one bucket, so that a task gets no more."""
    files = state.files.of_bucket(bucket)
    return replace(state, files=files, totals=FileTotals.of(files))

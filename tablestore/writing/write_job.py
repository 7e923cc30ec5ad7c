"""The tasks of a write, which may run anywhere: each folds sorted rows into files and prepares a log transaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from filestore.delta.by_slot import BySlot, LookupFiles
from filestore.errors import InvalidRequest, TableStoreError
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.files import PendingRun, Slot
from filestore.model.log_range import LogTransaction
from filestore.model.partition_set import PartitionSet
from filestore.writing.fold import rebase_slot
from filestore.writing.slot_result import ChangeSink, SlotResult, written_files
from filestore.writing.write import write_sorted
from log.table.session import LogSession
from log.table.store import LogStore, LogWriter
from tablestore.writing.in_order import ChangesInOrder
from tablestore.writing.overwrite import only_in

__all__ = ["TaskOutcome", "WriteJob", "WriteRunner", "discard_outcomes", "repeated_key"]

_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 4 << 20

_Work = Callable[[TableFiles, ChangeSink | None], Iterable[SlotResult]]


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of one task of a write, or the error that another attempt would also have."""

    results: tuple[SlotResult, ...] = ()
    transaction: LogTransaction | None = None
    error: TableStoreError | None = None


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The values of a write that its tasks need. It is picklable, so that Spark can send it.

    Attributes:
        table: The table to which files are written.
        base: What keys are looked up in; empty for an overwrite, which looks nothing up.
        log: The log to write to; None for a table without one, and for an overwrite.
        transaction_prefix: ``{table uuid}/{commit id}``.
        producer: Which changes the tasks write as change data.
        later: Rows are left as pending runs (``write-mode = merge-on-read``).
        runs: The pending runs by slot, if such a write is refused when a row is late; else None.
        in_order: The pending runs by slot, if the rows are changes in the order in which they happened; else None.
        only: The partitions in which all rows must be; None if rows of all partitions are allowed.
        skip_unchanged: Rows that change nothing are left out (`filestore.writing.fold.fold`).
    """

    table: TableFiles
    base: LookupFiles
    log: LogSession | None
    transaction_prefix: str
    producer: ChangelogProducer = ChangelogProducer.NONE
    later: bool = False
    runs: BySlot[PendingRun] | None = None
    in_order: BySlot[PendingRun] | None = None
    only: PartitionSet | None = None
    skip_unchanged: bool = False

    def run(self, batches: Iterable[pa.RecordBatch], attempt: str) -> TaskOutcome:
        """Folds sorted batches (see `filestore.writing.write.write_sorted`).

        Args:
            batches: The task's rows.
            attempt: ``{task}.{attempt}``, different for each attempt of each task, so that no two share records.
        """
        if self.only is not None:
            batches = only_in(batches, self.table.definition.partition_by, self.only)
        ordered = ChangesInOrder(self.table, self.base, self.in_order or BySlot())
        if self.in_order is not None:
            batches = ordered.checked(batches)

        def work(table: TableFiles, sink: ChangeSink | None) -> Iterator[SlotResult]:
            for result in write_sorted(
                table,
                self.base,
                batches,
                sink,
                self.producer,
                later=self.later,
                runs=self.runs,
                skip_unchanged=self.skip_unchanged,
            ):
                yield replace(result, rests_on_rows=True) if result.slot in ordered.looked_up else result

        return self._logged(attempt, work, set())

    def run_again(self, earlier: Sequence[SlotResult], attempt: str) -> TaskOutcome:
        """Computes results again after other commits changed their slots; `base` is that of the newest version."""
        return self._logged(
            attempt,
            lambda table, sink: (rebase_slot(table, self.base.of(r.slot), r, sink) for r in earlier),
            written_files(earlier),
        )

    def _logged(self, attempt: str, work: _Work, keep: set[str]) -> TaskOutcome:
        """Does the work in a log transaction. After an error it removes the new files, except those to keep."""
        done: list[SlotResult] = []
        try:
            if self.log is None:
                with self.table.synced_together() as table:
                    done.extend(work(table, None))
                return TaskOutcome(tuple(done))
            with self.log.lend() as log:
                return self._with_log(log, attempt, work, done)
        except BaseException:
            remove(self.table, written_files(done) - keep)
            raise

    def _with_log(self, log: LogStore, attempt: str, work: _Work, done: list[SlotResult]) -> TaskOutcome:
        writer = log.begin(f"{self.transaction_prefix}/{attempt}")
        try:
            with self.table.synced_together() as table, _Changes(writer, table) as changes:
                done.extend(work(table, changes))
            return TaskOutcome(tuple(done), writer.prepare())
        except BaseException:
            writer.abort()
            raise


def repeated_key(key: Mapping[str, Any]) -> InvalidRequest:
    """Returns the error of a write of which two rows have one key, where only one may have it."""
    return InvalidRequest(
        f"two rows have the key {key}: only one row of each key can be merged, so make the keys unique",
        code="repeated-key",
    )


class _Changes:
    """Sends changes to the log, those of small slots together: a log takes as long for a few rows as for thousands.

    Args:
        writer: The log.
        table: The table, whose columns it takes.
    """

    def __init__(self, writer: LogWriter, table: TableFiles) -> None:
        self._writer = writer
        self._columns = [*table.definition.schema.names, "_kind"]
        self._waiting: dict[int, list[pa.Table]] = {}
        self._rows = self._bytes = 0

    def __call__(self, slot: Slot, rows: pa.Table) -> None:
        """Takes changes of a slot; those of a bucket stay in their order."""
        rows = rows.select(self._columns)
        self._waiting.setdefault(slot.bucket, []).append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._send()

    def _send(self) -> None:
        for bucket, waiting in self._waiting.items():
            for _, alike in itertools.groupby(waiting, key=lambda rows: rows.schema):  # rows of a rebase may have nulls
                self._writer.append(bucket, pa.concat_tables(alike).combine_chunks())
        self._waiting, self._rows, self._bytes = {}, 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self._send()


def discard_outcomes(table: TableFiles, outcomes: Iterable[TaskOutcome]) -> None:
    """Removes the files of tasks that will not be committed.

    The writer ends their log transactions: it knows its commit's, also those of tasks that were stopped.
    """
    remove(table, written_files(result for outcome in outcomes for result in outcome.results))


WriteRunner = Callable[[WriteJob], Sequence[TaskOutcome]]
"""Calls `WriteJob.run` with a write's rows, in this process or as a Spark job."""

"""Follows an eventual log: returns its records as they are written, in their order (log/table/PROTOCOL.md section 5.2).

A version counts as read once all that it covers was returned, and its records may have been returned before its commit.
A reader that begins with a version begins in the log where all earlier records belong to the version, or were repaired.
Records that a commit repeats, as a retried task does, are left out as far as they are remembered (`Repeats`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Unavailable
from filestore.model.rowkind import RowKind
from filestore.rows.casting import cast_rows
from filestore.rows.reshape import reshaped
from filestore.rows.upserts import as_upserts
from log.table.store import LogBatch, LogControl, LogTail
from log.table.systems import open_log
from managed_table.own_log import OwnRecords
from tablestore.following.follow import Run
from tablestore.following.gaps import reading_replaced
from tablestore.following.hybrid import Replaced
from tablestore.following.pieces import scan_pieces
from tablestore.following.records import RecordReader, definition_after
from tablestore.following.repeats import Repeats

__all__ = ["TailRun"]

_POLL_SECONDS = 0.05
_PATIENCE_MS = 30_000


class TailRun(Run):
    """One running reader, which reads along the log."""

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yields all batches; without an end unless `stop` sets one."""
        self._open: LogTail | None = None
        with ExitStack() as self._opened, RecordReader(self._config, self._wanted, self._filestore.ambient) as records:
            if self._first is not None:
                yield from self._begun(records, self._first)
            yield from self._or_rescanned(records, self._started(records), exact=False)
            while not self._ending.reached(self._at.version):
                yield from self._or_rescanned(records, self._poll(records), exact=False)

    def _rescanned(self, records: RecordReader, *, exact: bool) -> Iterator[pa.RecordBatch]:
        """Reads all rows: what the reader has is not the rows of a version, so there is no difference to compute."""
        yield from super()._rescanned(records, exact=False)
        yield from self._started(records)

    def _started(self, records: RecordReader) -> Iterator[pa.RecordBatch]:
        yield from self._compared(records)  # a log that has lost its end has no place to go on
        self._start_tail()

    def _start_tail(self) -> None:
        """Goes to the offsets at which the log continues after the version that was read."""
        assert self._config is not None
        OwnRecords.newest(self._filestore).require(self._at.version + 1)
        self._state: TableState = self._filestore.state(self._at.version)
        self._offsets = {b: self._state.log.repaired.get(b, 0) for b in range(self._config.buckets)}
        self._known = {t.id for t in self._state.log.open}
        self._seen: deque[tuple[Commit, dict[int, int]]] = deque()
        self._named: dict[str, int] = {}
        self._undecided: dict[int, LogControl] = {}
        self._columns_change = False
        # the columns of the key keep their names
        self._repeats = Repeats(self._state.definition.primary_key, self._config.buckets)
        self._answered_ms = self._filestore.ambient.now_ms()
        self._close_tail()

    def _close_tail(self) -> None:
        """Closes the tail; what it returned and was not processed is read again by the next one."""
        self._opened.close()
        self._open = None
        self._skipped: set[int] = set()

    def _tail(self) -> LogTail:
        if self._open is None:
            assert self._config is not None
            config = replace(self._config, schema=self._state.definition.schema)
            log = self._opened.enter_context(open_log(config, self._filestore.ambient))
            self._open = self._opened.enter_context(log.tail(self._offsets))
        return self._open

    def _poll(self, records: RecordReader) -> Iterator[pa.RecordBatch]:
        for control in list(self._undecided.values()):
            yield from self._decided(records, control)
        tail = self._tail()
        events = tail.poll(_POLL_SECONDS)
        # IMPORTANT: read versions after records, since records may have the columns of a version that is new by now
        self._look_for_versions()
        if self._open is not tail:
            return
        for event in events:
            yield from self._taken(records, event)
        for bucket, offset in tail.offsets.items():
            if bucket not in self._skipped and bucket not in self._undecided:
                self._offsets[bucket] = max(self._offsets[bucket], offset)
        self._pass_versions()
        self._require_answers(bool(events))
        if not events:
            yield from self._waiting()

    def _require_answers(self, answered: bool) -> None:
        """Fails if the server of the log is gone: the log's client would wait, but versions show that there is more."""
        now_ms = self._filestore.ambient.now_ms()
        if answered or self._undecided or not (self._seen or self._columns_change):
            self._answered_ms = now_ms
        elif now_ms - self._answered_ms > _PATIENCE_MS:
            raise Unavailable(
                f"the log of {self._filestore.name} returns no records from {self._offsets} on, though version "
                f"{self._state.version} covers {self._state.log.offsets}: is its server running? Then retry",
                code="log-unavailable",
            )

    def _look_for_versions(self) -> None:
        while (commit := self._filestore.delta_log.read_entry(self._state.version + 1)) is not None:
            before = self._state.definition
            self._columns_change = definition_after(commit, before).schema != before.schema
            if self._columns_change:
                # all valid records with the former columns are before the end that the version before covers
                if any(self._offsets[b] < end for b, end in self._state.log.offsets.items()):
                    return
                self._columns_change = False
                self._close_tail()
            self._require_same_table()
            self._state = self._state.next(commit.version, commit.actions)
            if commit.begins_log:  # this reader may have records of the former one that no version will ever name
                OwnRecords(self._state, self._filestore.location).require(self._at.version + 1)
            self._named.update((t.id, commit.version) for t in commit.snapshot().transactions)
            ends = dict(self._state.log.offsets)
            for bucket, offset in self._state.log.repaired.items():
                ends[bucket] = max(ends.get(bucket, 0), offset)
            self._seen.append((commit, ends))

    def _pass_versions(self) -> None:
        while self._seen and all(self._offsets[b] >= end for b, end in self._seen[0][1].items()):
            commit, _ = self._seen.popleft()
            for transaction in commit.snapshot().transactions:
                del self._named[transaction.id]
            self._passed(commit)

    def _taken(self, records: RecordReader, event: LogBatch | LogControl) -> Iterator[pa.RecordBatch]:
        bucket, begins = event.bucket, self._offsets[event.bucket]
        later = self._columns_change and begins >= self._state.log.offsets.get(bucket, 0)
        if later or bucket in self._undecided:
            self._skipped.add(bucket)
        elif event.transaction_id in self._known:
            self._offsets[bucket] = event.end_offset
        elif isinstance(event, LogControl):
            yield from self._decided(records, event)
        else:
            self._offsets[bucket] = event.end_offset
            yield from self._new_rows(event)

    def _new_rows(self, event: LogBatch) -> Iterator[pa.RecordBatch]:
        changed = reshaped(pa.Table.from_batches([event.rows]), self._state.definition.schema, self._wanted)
        rows = as_upserts(changed, self._state.definition.primary_key)
        new = self._repeats.without_repeats(event.bucket, event.transaction_id, cast_rows(rows, self._schema))
        for batch in new.to_batches(self._how.max_rows):
            now_ms = self._filestore.ambient.now_ms()
            self._count_rows(batch.num_rows, now_ms)
            if event.written_ms is not None:
                self.progress = replace(self.progress, latency_ms=max(0, now_ms - event.written_ms))
            yield batch

    def _decided(self, records: RecordReader, control: LogControl) -> Iterator[pa.RecordBatch]:
        """Handles a control record once a version names it, or its transaction was repaired without one."""
        bucket = control.bucket
        named, state = self._named, self._state
        if self._columns_change:  # the next versions exist, and wait for this record
            state = self._filestore.state()
            later = self._filestore.delta_log.read_entries_after(self._state.version)
            named = named | {t.id: entry.version for entry in later for t in entry.snapshot().transactions}
        version = named.get(control.transaction_id)
        if version is None and state.log.repaired.get(bucket, 0) < control.end_offset:
            self._undecided[bucket] = control
            return
        if version is not None:
            self._repeats.forget(bucket)
            yield from self._replaced(records, version, bucket)
        self._offsets[bucket] = control.end_offset
        if self._undecided.pop(bucket, None) is not None and bucket in self._skipped:
            self._close_tail()

    def _replaced(self, records: RecordReader, version: int, bucket: int) -> Iterator[pa.RecordBatch]:
        """Yields a bucket's rows that an overwrite or a drop removed, and those that it added.

        Concurrent changes of the bucket by others are written again after the control record, by its writer or by them.
        """
        before, after = self._walk.pair(version)
        removed = scan_pieces(self._filestore.table_files(before), Replaced.removed(before, after), RowKind.DELETE)
        added = scan_pieces(self._filestore.table_files(after), Replaced.added(before, after), RowKind.INSERT)
        commit = self._walk.read_entry(version)
        for piece in (*removed, *added):
            if piece.bucket == bucket:
                with reading_replaced(self._filestore, version):
                    yield from self._given(records, piece, commit, version=before.version)

"""One partition of the embedded log: a SQLite file of record batches (PROTOCOL.md section 6).

A record batch is one row: an Arrow IPC stream of up to `BATCH_ROWS` changes, or one control record. An offset
is given to each record inside the SQLite transaction that stores it, so writers in several processes never
share one, and it is never given twice, also after an abort. WAL, so readers never wait for a writer.

Durability: appends commit with ``synchronous = NORMAL`` (no fsync); `Segments.append` with ``prepared=True``
    commits with
FULL, whose fsync of the write-ahead log covers all that was appended before (https://sqlite.org/wal.html).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa

from filestore.decoding import decoding, well_formed
from filestore.errors import Conflict, Corrupt, NotFound, TableStoreError, Unavailable
from filestore.refused import refused
from filestore.sqlite_files import REFUSALS, Connection, is_refusal, open_sqlite, why_refused
from log.table.embedded.sums import CONTROL, DATA, about, checked, summed
from log.table.rows import project

__all__ = [
    "CONTROL",
    "DATA",
    "Segment",
    "Segments",
    "StoredSegment",
    "create_file",
    "decode_control",
    "decode_segment",
    "encode_segment",
    "partition_path",
]

BUSY_SECONDS = 30.0
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_INTERRUPT", "SQLITE_NOMEM", *REFUSALS)
_PAGE_BYTES = 16_384
_TAIL_SEGMENTS = 64
_CHECKPOINT_PAGES = 4_096  # 64 MB: a bulk load is not copied from the WAL at each commit

_TABLES = """
CREATE TABLE segments (
    base_offset    INTEGER PRIMARY KEY,
    count          INTEGER NOT NULL,
    transaction_id TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    written_ms     INTEGER NOT NULL,
    payload        BLOB    NOT NULL
) STRICT;
CREATE TABLE open_transactions (
    id           TEXT PRIMARY KEY,
    first_offset INTEGER NOT NULL,
    prepared     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE bounds (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    start_offset INTEGER NOT NULL,
    end_offset   INTEGER NOT NULL
) STRICT;
INSERT INTO bounds VALUES (1, 0, 0);
"""

_ADVICE = "restore the log's folder, or let readers begin anew behind the damaged records"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Segment:
    """A record batch to append."""

    count: int
    kind: str
    payload: memoryview | bytes


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """The place of a stored record batch."""

    base_offset: int
    count: int
    kind: str
    written_ms: int


def partition_path(folder: Path, bucket: int) -> Path:
    """Returns the file in which the log of that folder keeps a bucket."""
    return folder / f"bucket-{bucket:05d}.sqlite"


def create_file(path: Path) -> None:
    """Creates an empty partition. REQUIRES: nobody else sees ``path`` yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_TABLES)
    finally:
        connection.close()


class Segments:
    """A partition, opened; the connection is made by the first use. `NotFound` once the file is gone.

    Args:
        path: The SQLite file.
        if_gone: What to do once it is.
    """

    def __init__(self, path: Path, if_gone: str = "its table was dropped") -> None:
        self._path = path
        self._if_gone = if_gone
        self._connection: Connection | None = None

    def append(
        self,
        transaction_id: str,
        segments: Sequence[Segment],
        now_ms: int,
        *,
        first: bool,
        prepared: bool,
        check: Callable[[int], None] = lambda offset: None,
    ) -> int:
        """Stores record batches one after the other; returns the first one's offset.

        Args:
            transaction_id: Whose they are.
            segments: May be empty, to prepare what was appended before.
            now_ms: The time to note.
            first: Whether the transaction appends to this partition for the first time.
            prepared: Whether this is its last append, which must be durable when it returns.
            check: Gets the first one's offset before anything is stored; an error refuses it.

        Raises:
            Conflict: ``log-transaction``: the id was used before, or another process has aborted it.
        """

        def work(db: sqlite3.Connection) -> int:
            base = int(db.execute("SELECT end_offset FROM bounds").fetchone()[0])
            check(base)
            if first:
                _open(db, transaction_id, base)
            _require_open(db, transaction_id, prepared)
            at = base
            for segment in segments:
                row = (at, segment.count, transaction_id, segment.kind, now_ms)
                payload = summed(segment.payload, segment.kind, about(*row))
                db.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)", (*row, payload))
                at += segment.count
            db.execute("UPDATE bounds SET end_offset = ?", (at,))
            return base

        return self._write(work, durable=prepared)

    def end(self, transaction_id: str, start: int, end: int, *, commit: bool) -> int:
        """Ends a transaction: it is no longer open, and an abort deletes its records.

        Gives how many records it has in the range.
        """

        def work(db: sqlite3.Connection) -> int:
            if not commit:
                db.execute(
                    "DELETE FROM segments WHERE base_offset >= ? AND base_offset < ? AND transaction_id = ?",
                    (start, end, transaction_id),
                )
            db.execute("DELETE FROM open_transactions WHERE id = ?", (transaction_id,))
            return sum(s.count for s in _select(db, transaction_id, start, end))

        return self._write(work, durable=False)

    def abort(self, transaction_id: str, *, keep: bool = False) -> None:
        """Deletes an open transaction's records, unless they are kept; does nothing if it is not open."""

        def work(db: sqlite3.Connection) -> None:
            row = db.execute("SELECT first_offset FROM open_transactions WHERE id = ?", (transaction_id,)).fetchone()
            if row is not None:
                if not keep:
                    db.execute(
                        "DELETE FROM segments WHERE base_offset >= ? AND transaction_id = ?",
                        (row[0], transaction_id),
                    )
                db.execute("DELETE FROM open_transactions WHERE id = ?", (transaction_id,))

        self._write(work, durable=False)

    def open_transactions(self) -> list[str]:
        """Returns the ids of open transactions."""
        with self._reading() as db:
            return [row[0] for row in db.execute("SELECT id FROM open_transactions ORDER BY first_offset")]

    def opened(self) -> list[tuple[str, int, int | None]]:
        """Returns id, first offset and time of writing of each open transaction."""
        with self._reading() as db:
            return db.execute(
                "SELECT id, first_offset, (SELECT min(written_ms) FROM segments WHERE base_offset >= first_offset AND "
                "transaction_id = id) FROM open_transactions ORDER BY first_offset"
            ).fetchall()

    def stable_offset(self) -> int:
        """Returns the offset of the first open transaction; without one the offset that the next record will get."""
        with self._reading() as db:
            query = "SELECT coalesce((SELECT min(first_offset) FROM open_transactions), end_offset) FROM bounds"
            return int(db.execute(query).fetchone()[0])

    def committed_behind(self, offset: int) -> int | None:
        """Returns the offset of the first record batch at or behind an offset whose transaction is not open."""
        with self._reading() as db:
            query = (
                "SELECT min(base_offset) FROM segments WHERE base_offset >= ? "
                "AND transaction_id NOT IN (SELECT id FROM open_transactions)"
            )
            return cast("int | None", db.execute(query, (offset,)).fetchone()[0])

    def bounds(self) -> tuple[int, int]:
        """Returns the first offset that is kept, and the one that the next record will get."""
        with self._reading() as db:
            start, end = db.execute("SELECT start_offset, end_offset FROM bounds").fetchone()
            return int(start), int(end)

    def older_than(self, time_ms: int) -> int:
        """Returns the offset before which all records are older than that, and none is of an open transaction."""
        with self._reading() as db:
            db.execute("BEGIN")
            try:
                young = "SELECT base_offset FROM segments WHERE written_ms >= ? ORDER BY base_offset LIMIT 1"
                found = [
                    db.execute(young, (time_ms,)).fetchone(),
                    db.execute("SELECT min(first_offset) FROM open_transactions").fetchone(),
                    db.execute("SELECT end_offset FROM bounds").fetchone(),
                ]
            finally:
                db.execute("ROLLBACK")
            return min(int(row[0]) for row in found if row is not None and row[0] is not None)

    def find(self, transaction_id: str, start: int, end: int) -> list[StoredSegment]:
        """Yields the transaction's record batches that overlap the range, in order, without their payloads."""
        with self._reading() as db:
            return _select(db, transaction_id, start, end)

    def after(self, offset: int) -> list[tuple[str, StoredSegment]]:
        """Yields the record batches that end after an offset, with their transactions, without their payloads."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT transaction_id, base_offset, count, kind, written_ms FROM segments "
                "WHERE base_offset + count > ? "
                "AND base_offset >= coalesce((SELECT max(base_offset) FROM segments WHERE base_offset <= ?), 0) "
                "ORDER BY base_offset LIMIT ?",
                (offset, offset, _TAIL_SEGMENTS),
            )
            return [(row[0], StoredSegment(*row[1:])) for row in rows]

    def payload(self, base_offset: int, where: str) -> memoryview | None:
        """Returns a record batch's bytes, which were compared with its checksum; None once it was deleted.

        Raises:
            Corrupt: ``log-record``: it is damaged; the message says ``where`` it is.
        """
        with self._reading() as db:
            row = db.execute(
                "SELECT base_offset, count, transaction_id, kind, written_ms, payload FROM segments "
                "WHERE base_offset = ?",
                (base_offset,),
            ).fetchone()
        if row is None:
            return None
        *beside, payload = row
        return checked(payload, row[3], about(*beside), where)

    def damages(self, where: str, covered: int) -> list[str]:
        """Looks at every byte, and describes what is damaged.

        Args:
            where: The partition, for record batches.
            covered: The offset up to which the table needs it.
        """
        try:
            with self._reading() as db:
                [(verdict,)] = db.execute("PRAGMA integrity_check(1)").fetchall()
                rows = db.execute(  # one statement, so that no writer comes between
                    "SELECT start_offset, end_offset, base_offset, base_offset + count, kind "
                    "FROM bounds LEFT JOIN segments"
                ).fetchall()
                start, end = rows[0][:2] if rows else (0, -1)
                stored = [(base, last, kind) for *_, base, last, kind in rows if base is not None]
        except Corrupt as error:
            return [error.message]
        found = [] if verdict == "ok" else [self._damaged(verdict).message]
        if not start <= end >= covered or any(last <= start or last > end for _, last, _ in stored if last is not None):
            found.append(self._damaged(f"it has offsets from {start} to {end}, and others are needed").message)
        for base, _, kind in stored:
            there = f"{where}, offset {base}"
            try:
                payload = self.payload(base, there)
                if payload is not None and kind == CONTROL:  # one bit can make it look like one without a checksum
                    decode_control(payload, there)
            except Corrupt as error:
                found.append(error.message)
        return found

    def trim(self, before: int) -> None:
        """Forgets record batches that end at or before that offset.

        Reading below it is an error from now on.
        """

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM segments WHERE base_offset + count <= ?", (before,))
            db.execute(
                "UPDATE bounds SET start_offset = max(start_offset, min(?, end_offset))",
                (before,),
            )

        self._write(work, durable=False)

    def close(self) -> None:
        """Closes the file; a later use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, work: Callable[[sqlite3.Connection], T], *, durable: bool) -> T:
        if self._connection is not None and self._connection.is_fallback:
            self.close()  # the disk may take writes again
        with self._reading() as db:
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            try:
                result = work(db)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
            return result

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        if self._connection is not None and not self._connection.read_was_consistent():
            self.close()
        try:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite quotes the damaged bytes
            raise self._translated(error) from error
        if not self._connection.read_was_consistent():
            raise self._busy("another process wrote it meanwhile")

    def _connect(self) -> Connection:
        # Not created: a dropped log must not come back as an empty file.
        connection = open_sqlite(
            self._path, create=False, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return connection

    def _translated(self, error: Exception) -> TableStoreError:
        if _is_gone(self._path):
            self.close()
            return NotFound(f"the log's partition {self._path} is gone: {self._if_gone}", code="log-not-found")
        if is_refusal(error) and (cause := why_refused(self._path)) is not None:
            return refused(f"cannot open or write the log's partition {self._path}", cause)
        if str(getattr(error, "sqlite_errorname", "")).startswith(_BUSY):
            return self._busy(str(error))
        return self._damaged(error)

    def _damaged(self, what: object) -> Corrupt:
        return Corrupt(
            f"the log's partition {self._path} is damaged: {what}. Restore the log's folder, or let readers begin anew "
            'behind it (scan="full")',
            code="log-corrupt",
        )

    def _busy(self, why: str) -> Unavailable:
        return Unavailable(
            f"the log's partition {self._path} cannot be used now ({why}): retry later", code="log-unavailable"
        )


def _is_gone(path: Path) -> bool:
    """Returns whether a file is certainly not there: without the right to look, or on a failing disk, it may be."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _open(db: sqlite3.Connection, transaction_id: str, base: int) -> None:
    taken = db.execute("SELECT 1 FROM open_transactions WHERE id = ?", (transaction_id,)).fetchone()
    if taken:
        raise Conflict(
            f"log transaction {transaction_id} is already open: take a new attempt number",
            code="log-transaction",
        )
    db.execute("INSERT INTO open_transactions VALUES (?, ?, 0)", (transaction_id, base))


def _require_open(db: sqlite3.Connection, transaction_id: str, prepared: bool) -> None:
    # A write in any case: it is what makes SQLite sync what earlier appends left in the WAL.
    cursor = db.execute("UPDATE open_transactions SET prepared = ? WHERE id = ?", (int(prepared), transaction_id))
    if not cursor.rowcount:
        raise Conflict(
            f"log transaction {transaction_id} was aborted by another process, as its writer seemed dead",
            code="log-transaction",
        )


def _select(db: sqlite3.Connection, transaction_id: str, start: int, end: int) -> list[StoredSegment]:
    rows = db.execute(
        "SELECT base_offset, count, kind, written_ms FROM segments "
        "WHERE base_offset >= coalesce((SELECT max(base_offset) FROM segments WHERE base_offset <= ?), 0) "
        "AND base_offset + count > ? AND base_offset < ? AND transaction_id = ? ORDER BY base_offset",
        (start, start, end, transaction_id),
    )
    return [StoredSegment(*row) for row in rows]


def encode_segment(rows: pa.Table) -> memoryview:
    """Encodes rows as an Arrow IPC stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_WRITE_OPTIONS) as writer:
        writer.write_table(rows.combine_chunks())
    return memoryview(sink.getvalue())


def decode_segment(payload: memoryview, target: pa.Schema, where: str) -> pa.RecordBatch:
    """Decodes rows in the columns that are wanted; a column that did not exist yet is null.

    Raises:
        Corrupt: ``log-record``: the bytes are damaged; the message says ``where`` they are.
    """
    known = set(target.names)
    with decoding(f"a record batch of the log ({where})", code="log-record", advice=_ADVICE):
        source = pa.ipc.open_stream(payload)
        wanted = [i for i, name in enumerate(source.schema.names) if name in known]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        stored = pa.ipc.open_stream(payload, options=options).read_all()
    return project(stored, target).combine_chunks().to_batches()[0]


def decode_control(payload: memoryview, where: str) -> dict[str, Any]:
    """Decodes a control record. For errors see `decode_segment`."""
    with well_formed(f"a control record of the log ({where})", code="log-record", advice=_ADVICE):
        return dict(json.loads(bytes(payload)))

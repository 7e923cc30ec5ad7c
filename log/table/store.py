"""The interface of a table's log, and the values that it takes and returns (PROTOCOL.md sections 1, 4 and 5).

The snapshot is the only decision record. A writer *prepares* its records, the caller names the prepared
transaction in a commit, and only then anyone *ends* it. Snapshots say which ranges a reader reads. From a
range it takes only the records of that transaction, whatever is between them: dead attempts, other writers, a
broker's markers. So it never asks the log what is committed, which is what FLIP-188 left open (its
log and its snapshots had no order).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from filestore.contexts import Closing
from filestore.errors import NotFound
from filestore.model.log_range import LogTransaction
from log.table.open_transaction import OpenTransaction

__all__ = ["LOG_GAP", "EndReport", "LogBatch", "LogControl", "LogStore", "LogTail", "LogWriter", "gap"]

LOG_GAP = "log-gap"
"""The code of the error of `gap`."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Rows of one transaction in one bucket, in log order.

    Attributes:
        bucket: The partition.
        transaction_id: Whose rows these are.
        rows: The table's columns, as asked for, and ``_kind`` last. Columns outside the key are nullable: a
            tombstone has the key alone.
        end_offset: Where reading goes on after these rows.
        written_ms: In a tail: when the log took the last of them.
    """

    bucket: int
    transaction_id: str
    rows: pa.RecordBatch
    end_offset: int
    written_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogControl:
    """A control record: something happened to the table that rows do not say, such as an overwrite."""

    bucket: int
    transaction_id: str
    payload: Mapping[str, Any]
    end_offset: int


@dataclass(frozen=True, slots=True)
class EndReport:
    """The result of `LogStore.end`.

    Attributes:
        ended: Ids that are now as asked for, also those that were before.
        lost: Ids that were to be committed and were aborted by the log itself (a time-out, a fencing). A
            foreign reader will never see their records: the caller publishes them again from the snapshot's
            files.
    """

    ended: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class LogWriter(Protocol):
    """One transaction of one writing task: `append`…, then `prepare` or `abort`, each once.

    A writer that is dropped without either leaves an open transaction, which `LogStore.abort_unnamed` finds.
    """

    def append(self, bucket: int, rows: pa.RecordBatch | pa.Table) -> None:
        """Adds changes: the table's columns and ``_kind``, in any order of columns. Rows keep their order.

        Raises:
            InvalidRequest: a column is missing or of another type, ``_kind`` has an unknown value, or a value
                has no spelling in the record format.
        """

    def control(self, bucket: int, payload: Mapping[str, Any]) -> None:
        """Adds a control record: a JSON object with a member ``control`` that names what happened."""

    def prepare(self) -> LogTransaction | None:
        """Makes everything durable and returns where it is; None if nothing was added (nothing to end then).

        Afterwards the records survive the death of this process and of the log's server, and stay invisible
        to foreign ``read_committed`` readers until `LogStore.end`.
        """

    def abort(self) -> None:
        """Aborts the transaction, also after `prepare`: no reader ever returns its records.

        Errors are only logged, since the caller already handles the one that made it abort.
        """


class LogTail(Closing, Protocol):
    """A reader of all records as they arrive in a log, whether or not a snapshot names them. One thread at a time."""

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the next record to read, by bucket."""

    def poll(self, seconds: float) -> list[LogBatch | LogControl]:
        """Returns what has arrived, as soon as something has; an empty list after that many seconds.

        Within a bucket it is in the log's order. Rows of one batch are of one transaction. Records that are not
        Tablestore's are skipped; `offsets` says how far reading is.

        Raises:
            NotFound: ``log-gap``: the records where it went on are gone.
            Unavailable: the log's server does not answer.
        """

    def close(self) -> None:
        """Closes the connections."""


class LogStore(Closing, Protocol):
    """The log of one table. Use it from one thread at a time, and open it again in another process."""

    def create(self) -> None:
        """Creates the log; a second call for the same table changes nothing.

        Raises:
            AlreadyExists: ``log-exists``: another table's, or with another number of partitions, is there.
            InvalidRequest: ``log-not-authorized``: a right that making it needs is missing.
            Unsupported: ``kafka-transaction-timeout``: the broker's limit, if it is known, would abort prepared
                transactions; ``log-sasl``, ``log-tls``: they could not be ended over such a connection.
            Unavailable: the log's server does not answer.
        """

    def create_anew(self) -> None:
        """Creates the log in the place of one that is gone or damaged. It deletes nothing, and may be called again.

        What is left of an embedded log is moved aside. A topic of the name that somebody has made since is taken if it
        agrees with the table's options, whatever is in it.

        Raises: as `create`.
        """

    def drop(self) -> None:
        """Deletes the log with all records, if there is one."""

    def exists(self) -> bool:
        """Returns whether `create` has made it."""

    def check_adoptable(self) -> None:
        """Checks that the existing log fits a new table; else `AlreadyExists` (``log-exists``) or ``log-topic``."""

    def check_writable(self) -> None:
        """Checks what a write needs of the log's server: an answer, the log, the rights, and Kafka's time for it.

        Raises:
            NotFound: ``log-not-found``.
            InvalidRequest: ``log-properties``, ``log-settings``: a setting of its clients does not exist, or its
                value cannot be; ``log-not-authorized``: a right is missing.
            Unsupported: as `create`.
            Unavailable: the log's server does not answer.
        """

    def identity(self) -> dict[str, str]:
        """Returns what offsets of this log belong to.

        ``system``, ``topic``, ``topic_id`` and ``cluster_id``, for the commit.
        """

    def begin(self, transaction_id: str) -> LogWriter:
        """Opens a transaction.

        Args:
            transaction_id: ``{table uuid}/{commit id}/{task}.{attempt}``, never used before.
        """

    def end(self, transactions: Iterable[LogTransaction], *, commit: bool, late: bool = False) -> EndReport:
        """Commits or aborts prepared transactions. Any process may do so, and again.

        Args:
            transactions: Which.
            commit: Whether they are committed.
            late: Whether so much time may have passed that retention took records of transactions that nobody had
                ended: those are lost.

        REQUIRES: for ``commit=True`` a snapshot names them; for ``commit=False`` no snapshot does or ever
            will.
        """

    def abort_unnamed(self, dead_among: Callable[[Sequence[str]], Collection[str]]) -> list[str]:
        """Aborts open transactions of this table whose writers are dead; returns their ids.

        Args:
            dead_among: Returns which of some open ones are aborted. It may be asked several times, since more of them
                may become known.

        REQUIRES: it returns no id that a snapshot names, or that a writer may still name.
        """

    def aborted(self, transactions: Sequence[LogTransaction]) -> list[str]:
        """Returns the ids of those that were aborted: no reader with ``read_committed`` ever gets their records.

        Those that are open, or whose records retention has deleted, are not among them.
        """

    def damages(self, covered: Mapping[int, int]) -> list[str]:
        """Looks at every stored byte, and describes what is damaged. Kafka's brokers look at theirs themselves.

        Args:
            covered: By bucket the offset up to which the newest version covers the log.
        """

    def end_hanging(self) -> list[str]:
        """Ends this table's transactions that a partition takes for open after their end; returns their ids.

        Only foreign readers wait for them. A log that ends a transaction everywhere at once has none.

        Raises:
            InvalidRequest: ``log-not-authorized``: there are some, and it takes more rights.
        """

    def events(
        self,
        transactions: Sequence[LogTransaction],
        *,
        bucket: int | None = None,
        columns: Sequence[str] | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch | LogControl]:
        """Yields the rows and control records of exactly those transactions.

        Within a bucket they come in the order of ``transactions`` (the order of snapshots, which may differ
        from that of the log), and within a transaction in log order. A batch is bounded, so memory is.
        From a topic that is compacted, records are missing that a later one of their key supersedes.

        Args:
            transactions: Named by snapshots.
            bucket: Whose records; all if None.
            columns: The columns wanted; all if None.
            committed_ms: When the oldest of those snapshots was committed, in milliseconds since 1970 UTC: a topic that
                is compacted forgets tombstones some time after. None if unknown.

        Raises:
            NotFound: ``log-gap``: records are gone (retention, an abort), or perhaps tombstones, so reading goes
                on with ``scan="full"`` only.
        """

    def read(
        self,
        transactions: Sequence[LogTransaction],
        *,
        bucket: int | None = None,
        columns: Sequence[str] | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch]:
        """Yields what `events` does, without the control records."""
        for event in self.events(transactions, bucket=bucket, columns=columns, committed_ms=committed_ms):
            if isinstance(event, LogBatch):
                yield event

    def tail(self, offsets: Mapping[int, int], columns: Sequence[str] | None = None) -> LogTail:
        """Opens a reader of all records from those offsets on, in the order of the log (PROTOCOL.md section 5.2).

        Args:
            offsets: Which buckets, and where each begins.
            columns: Which columns; all if None.
        """

    def start_offsets(self) -> dict[int, int]:
        """Returns the first offset that is still kept, by bucket."""

    def end_offsets(self) -> dict[int, int]:
        """Returns the offset that the next record will get, by bucket."""

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the transactions that foreign ``read_committed`` readers wait for, by bucket and offset; anyone's."""

    def stable_offsets(self) -> dict[int, int]:
        """Returns by bucket where foreign ``read_committed`` readers stop: at the bucket's first open transaction."""

    def committed_behind(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Returns the offset of the first record at or behind those offsets that readers with ``read_committed`` get.

        Only the table's own records count, and a bucket without one is left out. No record counts where they are
        written outside of transactions.
        """

    def trim(self, before: Mapping[int, int]) -> None:
        """Deletes, in each bucket that is named, the records below that offset."""

    def keep_for(self, milliseconds: int | None) -> None:
        """Sets how long records are kept; None for as long as the log's server does by itself.

        An embedded log deletes nothing by itself: maintenance trims it.
        """

    def close(self) -> None:
        """Closes files and connections."""


def gap(where: str, problem: str) -> NotFound:
    """Makes the error of a reader whose records were deleted."""
    return NotFound(
        f"the log of {where} has a gap: {problem}. The changes can no longer be read one by one: "
        'start again from a snapshot with scan="full"',
        code=LOG_GAP,
    )

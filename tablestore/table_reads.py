"""How a table without Spark is read: rows of a version, rows of keys, and changes as they come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from filestore.arguments import checks_arguments
from filestore.errors import InvalidRequest
from filestore.life.consumers import Consumer, consumers_of, forget_consumer
from filestore.life.holds import ConsumerInfo
from filestore.life.retention import tag_of
from filestore.model.definition import TableDefinition
from filestore.reading.get import get_rows
from filestore.reading.predicate import Predicate
from tablestore.following.follow import Follower, Following, How, Stop
from tablestore.following.follow_metrics import FollowMeter
from tablestore.following.gaps import on_log_gap as choice_on_gap
from tablestore.following.progress import Lag, lags
from tablestore.following.result_mode import ResultMode, result_mode
from tablestore.following.starting import Asked
from tablestore.following.tail_run import TailRun
from tablestore.handle import TableHandle
from tablestore.moments import milliseconds
from tablestore.reading.asked_keys import Keys, asked_keys
from tablestore.reading.batch_size import batch_size
from tablestore.reading.log_tail import VisibleTail
from tablestore.reading.scan import Scan

__all__ = ["TableReads"]


@checks_arguments("keys")
class TableReads:
    """The reading half of `tablestore.Table`."""

    def __init__(self, handle: TableHandle) -> None:
        self.handle = handle
        self.filestore = handle.files()

    @property
    def definition(self) -> TableDefinition:
        """Schema, keys and options."""
        return self.filestore.state().definition

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow."""
        return self.definition.schema.to_arrow()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        version: int | None = None,
        fresh: bool = False,
        *,
        timestamp: datetime | None = None,
        tag: str | None = None,
    ) -> Scan:
        """Reads the table: `to_arrow`, `to_polars`, `to_pandas`, `to_pylist` or `to_batches` of the `Scan` run it.

        Args:
            columns: Which columns; all if None. With ``[]`` what comes has the number of rows and no column.
            where: A SQL condition such as ``"amount > 10 AND region = 'eu'"``, or a polars expression.
            version: The state of that version (time travel).
            fresh: Also what the log holds beyond the newest snapshot: with ``log.consistency = eventual`` the rows of
                writers at work, and of those that failed until that is mended. Otherwise that is nothing, since a
                change becomes visible together with its snapshot.
            timestamp: The state at that time; give either this or `version`.
            tag: The state that has this tag; give only one of the three.

        Raises:
            NotFound: ``snapshot-expired``, here or while it is read: hold old versions with a tag or a consumer.
        """
        if fresh and any(given is not None for given in (version, timestamp, tag)):
            raise InvalidRequest("fresh=True reads the newest state: leave version out", code="bad-time-travel")
        state = self.filestore.state(self.version_of(version, timestamp, tag))
        log = self.handle.log(state.definition) if fresh else None
        tail = VisibleTail(self.filestore, log) if log is not None and log.eventual else None
        return Scan(self.filestore, state, columns, where, tail)

    def get(self, keys: Keys, columns: Sequence[str] | None = None, version: int | None = None) -> pa.Table:
        """The rows of given keys: an Arrow table in the order of the keys.

        A key that has no row is left out, one that is given twice comes once. Whoever asks or writes often keeps the
        `Table`: what is looked up again and again is then found on the local disk, within the bounds of the options
        ``lookup.cache-…`` (files without a name below the system's temporary folder, ``$TMPDIR``).

        Args:
            keys: Arrow, polars or pandas (as in `Table.write`) with the primary key's columns, a list of dicts with
                their names, a list of tuples in their order, or, if the key is one column, a list of its values.
            columns: Which columns; all if None.
            version: The state of that version (time travel).

        Raises:
            InvalidRequest: a table without a key (``no-primary-key``), or keys that do not fit it (``bad-keys``,
                ``null-key``, ``bad-value``).
            NotFound: a column or version that is not there.
        """
        state = self.filestore.state(version)
        asked = asked_keys(keys, state.definition)
        return get_rows(self.filestore.files(state), state, asked, columns)

    def follow(  # noqa: PLR0913  # what a reader can choose are its arguments
        self,
        scan: str | None = None,
        *,
        timestamp: datetime | None = None,
        version: int | None = None,
        tag: str | None = None,
        mode: str = "upsert",
        stop: Stop = None,
        consumer: str | None = None,
        on_log_gap: str = "fail",
        max_rows_per_batch: int | None = None,
    ) -> Following:
        """The table's rows and then its changes as they are committed: Arrow batches with ``_kind``.

        All batches have the columns that the table has now, also those of older and of later versions: a column that
        a version lacks is null in its changes, one that comes later is left out, a renamed one keeps its name.

        With ``log.consistency = eventual`` and mode ``upsert`` changes come as they are written, before their commit,
        in the log's order; what a failed write told is corrected by later changes. What a task that was tried again
        repeats is left out as far as it is remembered. A version counts as read once all that it covers was given.

        Args:
            scan: ``full``: all rows of the newest snapshot as ``+I``, then every later change; with a timestamp,
                version or tag the rows of that version first. ``latest``: later changes only. ``from-timestamp``:
                changes after the state at `timestamp`; all, if the table is younger. Default: what the rest
                says; if nothing is said, the table's ``log.scan``, or ``full``.
            timestamp: Changes after the state at that time.
            version: Changes after that version.
            tag: Changes after the version with that tag.
            mode: ``upsert``: what a key's row is now (``+I``, ``+U``), as the log has it, and ``-D`` if there is none,
                also where the log has a ``-U`` without a ``+U`` behind it. ``changelog``:
                exact changes: ``-U`` with the row as it was before each ``+U``, ``-D`` with the row as it was, and
                nothing where a write changes nothing. They come from change data, or from the files of the version
                before, so the table needs no log. With ``changelog-producer = input``: as they came.
            stop: When to end, since it is endless otherwise: a version number to end after, or a `threading.Event`
                or function that says so. All that was committed until then is still given.
            consumer: An id under which the reader's position is kept: what it has still to read does not expire, and
                a later reader with this id goes on there, whatever else it asks for. A version that was not taken
                to its end comes again.
            on_log_gap: What follows if changes are gone that the reader has still to read. ``fail``: an error.
                ``rescan``: it goes on from the newest version: with what differs from the one that it has read, if that
                is still there; else with a batch without rows of which `tablestore.following.gaps.truncates` says that
                all rows that came are void, and then all rows.
            max_rows_per_batch: The most rows of a batch; None: as they come.

        Returns:
            An iterator of batches, with ``progress``, ``lag()`` and ``close()``.

        Raises:
            InvalidRequest: ``bad-scan-mode``, ``bad-time-travel``, ``bad-result-mode``, ``bad-on-log-gap``,
                ``bad-option-value``.
            Unsupported: with ``mode = "upsert"`` a table without a log (``no-log``).
            NotFound: ``log-gap`` or ``snapshot-expired``: changes are gone; start again with ``scan="full"``.
            Conflict: ``consumer-taken``: another reader took the consumer's id.
            Unsupported: ``schema-changed``: a column was widened since, and a value does not fit its former type.
        """
        how = How(result_mode(mode), choice_on_gap(on_log_gap), batch_size(max_rows_per_batch))
        required = self.handle.required_log if how.mode is ResultMode.UPSERT else self.handle.log
        log = required(self.definition)
        as_written = log is not None and log.eventual and how.mode is ResultMode.UPSERT
        meter = FollowMeter(self.handle.meter, self.handle.identifier)
        follower = Follower(self.filestore, log, TailRun if as_written else None, meter)
        named = None if consumer is None else self.consumer(consumer)
        return follower.follow(Asked(scan, timestamp, version, tag), how, stop, named)

    def consumer(self, consumer_id: str) -> Consumer:
        """A reader's hold: ``with table.consumer("report").register(7): ...`` keeps version 7 and later ones."""
        return Consumer(self.filestore, consumer_id)

    def consumers(self) -> list[ConsumerInfo]:
        """The consumers that were heard of within ``consumer.expiration-time``, by id."""
        return consumers_of(self.filestore)

    def consumer_lags(self) -> dict[str, Lag]:
        """What each of `consumers` has still to read, by id."""
        held = {consumer.id: consumer.version for consumer in self.consumers()}
        found = lags(self.filestore, set(held.values()))
        return {name: found[version] for name, version in held.items()}

    def delete_consumer(self, consumer_id: str) -> None:
        """Forgets a consumer whose reader will not come back. `NotFound` (``no-such-consumer``)."""
        forget_consumer(self.filestore, consumer_id)

    def version_at(self, timestamp: datetime) -> int:
        """The newest version committed at or before that time; `NotFound` if the table is younger."""
        return self.filestore.version_at(milliseconds(timestamp))

    def version_of(self, version: int | None, timestamp: datetime | None, tag: str | None) -> int | None:
        """The version that one of them names; None if none is given."""
        if sum(given is not None for given in (version, timestamp, tag)) > 1:
            raise InvalidRequest("give only one of version, timestamp and tag", code="bad-time-travel")
        if tag is not None:
            return tag_of(self.filestore.state(), tag).version
        return version if timestamp is None else self.version_at(timestamp)

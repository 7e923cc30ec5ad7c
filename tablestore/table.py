"""`Table`: one managed table without Spark, built on the same code as `tablestore.spark`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from compaction.in_writer import InWriter
from filestore.arguments import checks_arguments
from filestore.errors import InvalidRequest, TableStoreError
from filestore.model.change_text import parse_changes
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.evolution import Evolution
from filestore.model.files import DataFile
from filestore.model.snapshot import Snapshot
from filestore.operations.alter import plan_alter
from filestore.progress import Observe
from filestore.reading.get import get_rows
from filestore.reading.predicate import Predicate
from filestore.rows.partitions import partition_set
from managed_table.new_log import begin_new_log
from managed_table.opened import OpenedTable
from tablestore.care import Care
from tablestore.following.consumed import Consumed
from tablestore.following.follow import Follower, Following, FollowOptions, Stop
from tablestore.following.follow_metrics import FollowMeter
from tablestore.following.gaps import OnGap
from tablestore.following.gaps import on_log_gap as choice_on_gap
from tablestore.following.result_mode import Mode, ResultMode, result_mode
from tablestore.following.starting import ScanFrom, StartOptions
from tablestore.following.tail_run import TailRun
from tablestore.incoming.given import Rows, arrow_parts
from tablestore.logcare.metrics import measure_log
from tablestore.logcare.status import BucketLog, log_status
from tablestore.lookup.lookups import Lookups
from tablestore.lookup.request import Expired, Kind, LookupRequest
from tablestore.lookup.rows import lookup_rows
from tablestore.reading.asked_keys import Keys, asked_keys
from tablestore.reading.batch_size import batch_size
from tablestore.reading.log_tail import VisibleTail
from tablestore.reading.results import ReadRows
from tablestore.reading.scan import Scan
from tablestore.reading.versions import Versioned
from tablestore.recovering.recovery import Recovered
from tablestore.system.detail import detail_of
from tablestore.system.scan import SystemScan, Versions, system_scan
from tablestore.writing.altering import alter_table
from tablestore.writing.apps import app_version
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.expiry import expired
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.overwrite import Drop, Overwrite
from tablestore.writing.row_commands import RowCommand
from tablestore.writing.write import Basis
from tablestore.writing.writer import TableWriter

__all__ = ["Table"]


@checks_arguments("rows", "keys")
class Table(Versioned, Consumed, Care):
    """A managed table. Get it from `Store.table`. It can be kept, and always works on the newest version."""

    def __init__(self, opened: OpenedTable) -> None:
        self.opened = opened
        self.filestore = opened.filestore
        self.in_writer = InWriter(self.filestore)
        self._lookups = Lookups(self.filestore)

    def __repr__(self) -> str:
        try:
            return f"Table({self.identifier!r}, version={self.version})"
        except TableStoreError as error:
            return f"Table({self.identifier!r}, {error.code})"

    def __reduce__(self) -> tuple[type[Table], tuple[OpenedTable]]:
        """Pickles where the table is: another process opens it for itself, at the newest version.

        Where the catalog holds the commits (``commits = catalog``) it can only read there: pickle the `Store` to write.
        """
        return Table, (self.opened,)

    @cached_property
    def _writer(self) -> TableWriter:
        opened = self.opened
        meter = CommitMeter(opened.meter, self.identifier, opened.ambient)
        return TableWriter(self.filestore, opened.log_config, opened.ambient, meter=meter)

    @property
    def identifier(self) -> str:
        """``database.table``."""
        return self.opened.identity.identifier

    @property
    def location(self) -> str:
        """The path of the Delta table, which any Delta reader can open."""
        return self.opened.identity.location

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
            columns: Which columns; all if None. With ``[]`` the batches have a number of rows and no column.
            where: A SQL condition such as ``"amount > 10 AND region = 'eu'"``, or a polars expression.
            version: Reads that version (time travel).
            fresh: Whether to read also what the log has beyond the newest snapshot: with ``log.consistency = eventual``
                the rows of running writers, and those of failed writers until they are repaired. With other logs there
                is nothing, since a change becomes visible together with its snapshot.
            timestamp: Reads the table as it was at that time; pass only one of `version`, `timestamp` and `tag`.
            tag: Reads the version with this tag.

        Raises:
            NotFound: ``snapshot-expired``, here or during the read: hold old versions with a tag or a consumer.
        """
        if fresh and any(given is not None for given in (version, timestamp, tag)):
            raise InvalidRequest("fresh=True reads the newest state: leave version out", code="bad-time-travel")
        state = self.filestore.state(self.version_of(version, timestamp, tag))
        tail = VisibleTail.of(self.opened, state.definition) if fresh else None
        return Scan(self.filestore, state, columns, where, tail)

    def get(self, keys: Keys, columns: Sequence[str] | None = None, version: int | None = None) -> ReadRows:
        """Reads the rows of given keys, in the order of the keys.

        A key without a row is left out, and a key that is passed twice has one row. Keep the `Table` if you look up or
        write often: it caches what look-ups read on the local disk, within the bounds of the options
        ``lookup.cache-…`` (files without a name below the system's temporary folder, ``$TMPDIR``).

        Args:
            keys: Arrow, polars or pandas (as in `Table.write`) with the primary key's columns, a list of dicts with
                their names, a list of tuples in their order, or, if the key is one column, a list of its values.
            columns: Which columns; all if None.
            version: Reads that version (time travel).

        Raises:
            InvalidRequest: a table without a key (``no-primary-key``), or keys that do not fit it (``bad-keys``,
                ``null-key``, ``bad-value``).
            NotFound: a column or version that does not exist.
        """
        state = self.filestore.state(version)
        asked = asked_keys(keys, state.definition)
        return ReadRows(get_rows(self.filestore.table_files(state), state, asked, columns))

    def lookup(  # noqa: PLR0913  # what a join can choose are its arguments
        self,
        rows: Rows,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        kind: Kind = "left",
        columns: Sequence[str] | None = None,
        prefix: str = "",
        at: str | None = None,
        version: int | None = None,
        fresh: bool = False,
        expired: Expired = "fail",
    ) -> pa.Table:
        """Joins rows with the rows of this table that have their key (docs/lookup-joins.md).

        Keep the `Table` for further look-ups: a small table stays in memory and is kept up to date from its changes; of
        a large one it caches what look-ups read, as `get` does.

        Args:
            rows: What `write` takes: Arrow, polars or pandas, a list of dicts.
            on: The columns that have to be equal: a name, a list of names, or a dict from columns of the rows to those
                of the table. None: the primary key, by the same names. A null equals nothing.
            kind: ``left``, or ``inner``: rows without a match are left out.
            columns: The columns of the table in the result; None: all but those of `on`.
            prefix: Is put before their names in the result.
            at: The rows' column with a time: each row meets the newest version that was committed at or before it, and
                none if it is null or before the table was created. A time without a zone is UTC. None or
                ``processing``: the newest version.
            version: Reads that version; None and no `at`: the newest one.
            fresh: Reads also what the log has beyond the newest version, as in `scan`.
            expired: With `at`, where a version has expired: ``fail``, or ``oldest``: take the oldest that is left.

        Returns:
            The rows in their order, each once for each match, with the table's columns behind their own.

        Raises:
            InvalidRequest: ``bad-lookup``: columns that do not fit, or a name twice; ``bad-value``: a key that does not
                fit its column; ``bad-time-travel``: more than one of at, version and fresh.
            NotFound: ``unknown-column``, ``no-such-version``, ``snapshot-expired``.
        """
        asked = LookupRequest(on, kind, columns, prefix, at, expired)
        return lookup_rows(self._lookups, self.opened, rows, asked, version=version, fresh=fresh)

    def follow(  # noqa: PLR0913  # what a reader can choose are its arguments
        self,
        scan: ScanFrom | None = None,
        *,
        timestamp: datetime | None = None,
        version: int | None = None,
        tag: str | None = None,
        mode: Mode = "upsert",
        stop: Stop = None,
        consumer: str | None = None,
        on_log_gap: OnGap = "fail",
        max_rows_per_batch: int | None = None,
    ) -> Following:
        """Yields the table's rows and then its changes as they are committed, in Arrow batches with ``_kind``.

        All batches have the columns that the table has now, also those of older and of later versions: a column that
        a version lacks is null in its changes, a later one is left out, and a renamed one keeps its name.

        With ``log.consistency = eventual`` and mode ``upsert`` it yields changes as they are written, before their
        commit, in the log's order; later changes correct those of a failed write. Repeated changes of a retried task
        are left out as far as they are remembered. A version counts as read once all that it covers was yielded.

        Args:
            scan: ``full``: all rows of the newest snapshot as ``+I``, then every later change; with a timestamp,
                version or tag the rows of that version first. ``latest``: later changes only. ``from-timestamp``:
                changes that were committed at `timestamp` or later, or all if the table is younger. The default depends
                on the other arguments; without any it is the table's ``log.scan``, or ``full``.
            timestamp: Yields changes that were committed at that time or later.
            version: Yields changes after that version.
            tag: Yields changes after the version with that tag.
            mode: ``upsert``: the new row of a key (``+I``, ``+U``), as the log has it, and ``-D`` if there is none,
                also where the log has a ``-U`` without a ``+U`` behind it. ``changelog``:
                exact changes: ``-U`` with the row before each ``+U``, ``-D`` with the row before, and nothing where a
                write changes nothing. They are read from change data, or derived from the files of the version before,
                so the table needs no log. With ``changelog-producer = input`` they are the rows as they were written,
                but for those of statements (docs/changes.md).
            stop: When to end, since it is endless otherwise: a version number to end after, a `threading.Event`, or a
                function that returns True. All that was committed until then is still yielded.
            consumer: An id under which the reader's position is kept: what it has still to read does not expire, and
                a later reader with this id continues there, whatever the other arguments are. A version that was not
                read to its end is yielded again.
            on_log_gap: What to do if changes are gone that the reader has still to read. ``fail``: raise an error.
                ``rescan``: continue from the newest version. If the version that it has read still exists, it yields
                the differences; else it yields a batch without rows, for which `tablestore.following.gaps.truncates`
                is true: all rows before it are void. Then it yields all rows.
            max_rows_per_batch: The most rows of a batch; None for batches as they are read.

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
        how = FollowOptions(result_mode(mode), choice_on_gap(on_log_gap), batch_size(max_rows_per_batch))
        required = self.opened.required_log if how.mode is ResultMode.UPSERT else self.opened.log_config
        log = required(self.definition)
        as_written = log is not None and log.eventual and how.mode is ResultMode.UPSERT
        meter = FollowMeter(self.opened.meter, self.identifier)
        follower = Follower(self.filestore, log, TailRun if as_written else None, meter)
        named = None if consumer is None else self.consumer(consumer)
        return follower.follow(StartOptions(scan, timestamp, version, tag), how, stop, named)

    def write(
        self,
        rows: Rows,
        overwrite: Overwrite = False,
        *,
        app: tuple[str, int] | None = None,
        if_version: int | None = None,
        observe: Observe | None = None,
    ) -> Snapshot:
        """Writes rows as one commit: upserts if the table has a primary key, else inserts.

        Args:
            rows: Arrow, polars, a pandas frame (levels of its index that have names are columns, and what pandas takes
                for missing is null), a list of dicts (a key that a dict lacks is null), or anything with
                ``__arrow_c_stream__``. A column ``_kind`` (``+I``, ``-U``, ``+U``, ``-D``) says what each row does;
                without it a row is put, and replaces the one with its key. Of rows with one key the last wins.
            overwrite: True: the rows replace the whole table. ``"dynamic"``: they replace the partitions that they
                have. ``{"day": "2026-01-31"}``, or a list of such: they replace those partitions, and must be in them;
                a dict without some of the partition columns stands for all partitions with the values that it has.
            app: An id and number of your own: a second write with the same ones (or a lower number) changes
                nothing, so that a job can be retried blindly. The number is 0 or more; ids that begin with
                ``tablestore.`` or ``spark.`` are reserved.
            if_version: The version from which the rows were worked out. They are written only if no row of their keys
                (with `overwrite`: of the partitions that they replace) has changed since. Where a write does not look
                keys up (docs/tables.md), any changed row of its buckets counts. Compactions alone do not count.
            observe: Takes how far the write is (`filestore.progress`): the rows that were read, then those written.

        Returns:
            The snapshot that has the rows; that of an earlier attempt if `app` was written already. No rows make no
            version, unless they overwrite something or have an `app`: then it is the newest snapshot.

        Raises:
            InvalidRequest: rows that do not fit. Nothing was changed.
            Conflict: lost against other writers. Nothing was changed. ``read-changed``: with `if_version`.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        number = None if app is None else app_version(*app)
        state = self.filestore.state()
        basis = Basis.of(if_version)
        with GivenRows(arrow_parts(rows, state.definition.schema.to_arrow()), observe) as given:
            given.fitted(state.definition)  # rows that do not fit are refused before anything begins
            snapshot = self._writer.write(given, overwrite=overwrite, app=number, base=state, basis=basis)
        self.in_writer.after_commit(state.definition)
        return snapshot

    def delete(self, where: Predicate) -> Snapshot | None:
        """Removes the rows that fulfil a condition, as one commit; returns None if there are none.

        Args:
            where: A SQL condition such as ``"status = 'CANCELLED'"``, or a polars expression, as in `scan`.

        Raises:
            Unsupported: ``no-primary-key``; ``merge-engine``: it would not remove rows. SQL does the same.
            Conflict: rows that it had read changed again and again (``read-changed``). Nothing was changed.
        """
        return self._run(RowCommand(where))

    def update(self, values: Mapping[str, Any], where: Predicate) -> Snapshot | None:
        """Changes columns of the rows that fulfil a condition, as one commit; returns None if there are none.

        Args:
            values: By column the new value, or a polars expression of the row: ``{"status": "PAID", "n": pl.col("n") +
                1}``. ``pl.sql_expr("amount * 2")`` makes one of SQL's text. Values fit their columns as in `write`.
            where: Which rows, as in `delete`.

        Raises:
            InvalidRequest: ``key-changed``: a column of the primary key; ``bad-value``. Nothing was changed.
            Unsupported, Conflict: as `delete`.
        """
        return self._run(RowCommand(where, values))

    def _run(self, command: RowCommand) -> Snapshot | None:
        snapshot = command.run(self.filestore, self._writer)
        if snapshot is not None:
            self.in_writer.after_commit(self.definition)
        return snapshot

    def drop_partitions(self, partitions: Sequence[Mapping[str, Any]]) -> Snapshot | None:
        """Drops partitions with all their rows, as one commit; returns None if they are empty.

        Args:
            partitions: Values of the partition columns, such as ``[{"day": "2026-01-31"}]``. A dict without some of
                the columns drops every partition with the values that it has.

        Raises:
            InvalidRequest: the table has no such columns, or a value does not fit. Nothing was changed.
            Conflict: lost against other writers, again and again. Nothing was changed.
        """
        chosen = partition_set(partitions, self.definition)
        return self._writer.drop_partitions(lambda _: Drop(chosen))

    def expire_partitions(self) -> Snapshot | None:
        """Drops the partitions that are older than ``partition.expiration-time``, as one commit; None without any.

        Raises:
            InvalidRequest: the table has no ``partition.expiration-time`` (``no-expiration-time``).
            Conflict: with ``update-time``: others wrote to these partitions again and again meanwhile.
        """
        now_ms = self.opened.ambient.now_ms()
        return self._writer.drop_partitions(lambda state: expired(state, now_ms))

    def system(
        self,
        name: str,
        version: int | None = None,
        *,
        from_version: int | None = None,
        to_version: int | None = None,
    ) -> SystemScan:
        """Returns a scan of a system table: metadata or changes of this table as rows (tablestore/SYSTEM_TABLES.md).

        Args:
            name: ``snapshots``, ``schemas``, ``options``, ``tags``, ``partitions``, ``buckets``, ``files``,
                ``audit_log`` or ``changes``.
            version: For options, tags, partitions, buckets and files: reads them as of that version.
            from_version: For ``audit_log``: changes after that version; all if None. For ``changes``: the changes from
                the rows of that version to those of `to_version`, which may be an earlier one.
            to_version: For the same two; the newest version if None.

        Raises:
            NotFound: there is no such system table or version.
            InvalidRequest: the system table does not take these versions (``bad-versions``).
            Unsupported: ``audit_log`` of a table without a log; a table with a column ``rowkind``.
        """
        return system_scan(self.opened, name, Versions(version, from_version, to_version))

    def files(self, version: int | None = None) -> list[DataFile]:
        """Lists the live data files, by path."""
        return sorted(self.filestore.state(version).files, key=lambda f: f.path)

    def detail(self) -> dict[str, Any]:
        """Describes the table's definition and contents as plain values."""
        return detail_of(self.opened.identity, self.filestore.state())

    def alter(self, *changes: Change | str) -> Snapshot:
        """Changes columns, comments and options as one commit: it makes all of the changes, or none.

        Adding and moving columns, NOT NULL to nullable, comments and options change metadata only. Dropping, renaming
        and widening columns rewrite all files, or with ``schema.evolution-mode = metadata`` switch on features of Delta
        that some readers do not support. Writers and readers continue meanwhile.

        Args:
            changes: SQL such as ``"ADD COLUMN note STRING AFTER id"`` (`CHANGE_FORMS` in
                `filestore.model.change_text` has all forms), or values of `filestore.model.changes`. They are applied
                in this order.

        Returns:
            The snapshot that has the changes. Its ``notes`` say which readers can no longer read the table.

        Raises:
            InvalidRequest: a change that cannot be made. Nothing was changed.
            NotFound: there is no such column.
            Conflict: other changes of the table were faster, again and again. Nothing was changed.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        return alter_table(self.opened, parse_changes(changes))

    def plan_alter(self, *changes: Change | str) -> Evolution:
        """Returns what `alter` would do, and which readers it would exclude; changes nothing. Errors as in `alter`."""
        return plan_alter(self.filestore, parse_changes(changes))

    def rollback(
        self, version: int | None = None, *, timestamp: datetime | None = None, tag: str | None = None
    ) -> Snapshot:
        """Restores the rows of an older version in a new version; the changes are written to the log.

        Columns and options do not change; columns that were added since are null. App versions and the batch numbers of
        streaming queries stay, too: a batch that was rolled back is not written again.

        Raises:
            InvalidRequest: none or more than one of version, timestamp and tag.
            NotFound: ``no-such-version``, ``no-such-tag``, ``snapshot-expired``.
            Unsupported: ``rollback-over-schema``: files were rewritten since, for columns that changed.
            Conflict: the table's columns or options changed meanwhile. No row was changed.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        wanted = self.version_of(version, timestamp, tag)
        if wanted is None:
            raise InvalidRequest("say where to: give version, timestamp or tag", code="bad-time-travel")
        return self._writer.rollback(wanted)

    def new_log(self, options: Mapping[str, str] | None = None) -> Snapshot | None:
        """Begins a new log at the newest version if the table's log was lost; see `begin_new_log`. It can be repeated.

        Readers of changes that were behind fail with ``log-gap``. Returns None if the table has its log. `options` are
        those of the log that change with it, such as ``log.kafka.bootstrap.servers``; they are checked as in `create`.
        """
        return begin_new_log(self.opened, options)

    def writer(self) -> TableWriter:
        """Returns the table's writer, for code that runs tasks in another way, such as Spark."""
        return self._writer

    def recover(self) -> Recovered:
        """Ends the log transactions of dead writers, as the next write would: it commits those that a version names.

        Transactions of a version that the log itself has lost are published again. It is safe to repeat, and beside
        running writers. In a store of objects it waits first until it is known which writers live, for
        ``log.lease-timeout`` at most. Open transactions of other programs that make readers wait are in ``foreign``.

        Raises:
            Unavailable: log or storage did not answer.
        """
        return self._writer.recover()

    def log_status(self) -> Mapping[int, BucketLog]:
        """Returns the log's offsets by bucket; nothing for a table without a log. Errors are those of `log_status`."""
        found = log_status(self.opened)
        measure_log(self.opened.meter, self.identifier, found)
        return found

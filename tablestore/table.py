"""`Table`: one managed table without Spark, on the same kernel as `tablestore.spark`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from compaction.folding import fold_table
from compaction.in_writer import InWriter
from compaction.local import compact_table
from compaction.maintenance import Maintenance, maintain
from compaction.tombstones import bury
from filestore.alter import plan_alter
from filestore.checks.leftovers import Leftover
from filestore.doctor import Report, examine
from filestore.errors import InvalidRequest, TableStoreError
from filestore.life.consumers import Consumer, consumers_of, forget_consumer
from filestore.life.expiry import Expiry, expire
from filestore.life.holds import ConsumerInfo
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.life.retention import Tag, tag_of, tags_of
from filestore.life.tags import create_tag, delete_tag
from filestore.model.change_text import parse_changes
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.evolution import Evolution
from filestore.model.files import DataFile
from filestore.model.snapshot import Snapshot
from filestore.reading.get import get_rows
from filestore.reading.predicate import Predicate
from filestore.rows.partitions import partition_set
from filestore.sorting.order import sort_rows
from tablestore.altering import alter_table
from tablestore.apps import app_version
from tablestore.asked import Keys, asked_keys
from tablestore.detail import detail_of
from tablestore.expiry import expired
from tablestore.follow import Follower, Stop
from tablestore.handle import TableHandle
from tablestore.incoming import Rows, arrow_rows, conform
from tablestore.lease import at_work_since_ms
from tablestore.moments import milliseconds
from tablestore.overwrite import Drop, Overwrite
from tablestore.rollback import rollback
from tablestore.scan import Scan
from tablestore.system.scan import SystemScan, Versions, system_scan
from tablestore.transaction import TableWriter
from tablestore.write_job import TaskOutcome, WriteJob

__all__ = ["Table"]


class Table:
    """A managed table. Get it from `Store.table`; it may be kept, and always works on the newest version."""

    def __init__(self, handle: TableHandle) -> None:
        self.handle = handle
        self.filestore = handle.files()
        self._writer = TableWriter(self.filestore, handle.log, handle.ambient)
        self.in_writer = InWriter(self.filestore)

    def __repr__(self) -> str:
        try:
            return f"Table({self.handle.identifier!r}, version={self.filestore.state().version})"
        except TableStoreError as error:
            return f"Table({self.handle.identifier!r}, {error.code})"

    @property
    def location(self) -> str:
        """The Delta table's path: any Delta reader opens it."""
        return self.handle.location

    @property
    def definition(self) -> TableDefinition:
        """Schema, keys and options."""
        return self.filestore.state().definition

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow."""
        return self.definition.schema.to_arrow()

    def write(self, rows: Rows, overwrite: Overwrite = False, *, app: tuple[str, int] | None = None) -> Snapshot:
        """Writes rows as one commit: upserts if the table has a primary key, else inserts.

        Args:
            rows: Arrow or polars. A column ``_kind`` (``+I``, ``-U``, ``+U``, ``-D``) says what each row does;
                without it a row is put, replacing the one with its key. Of rows with one key the last wins.
            overwrite: True: the rows replace the whole table. ``"dynamic"``: the partitions that they have.
                ``{"day": "2026-01-31"}``, or a list of such: those partitions, in which they must lie; a spec without
                some of the partition columns stands for all partitions with the values that it has.
            app: An id and number of your own: a second write with the same ones (or a lower number) changes
                nothing, so that a job can be retried blindly. The number is 0 or more; ids that begin with
                ``tablestore.`` or ``spark.`` are the store's own.

        Returns:
            The snapshot that holds the rows; of an earlier attempt, if `app` was written already.

        Raises:
            InvalidRequest: rows that do not fit. Nothing was changed.
            Conflict: lost against other writers. Nothing was changed.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        number = None if app is None else app_version(*app)
        given, arranged = arrow_rows(rows), dict[TableDefinition, list[pa.RecordBatch]]()

        def batches(definition: TableDefinition) -> list[pa.RecordBatch]:
            """Worked out again only if the table's definition is changed meanwhile."""
            if definition not in arranged:
                arranged[definition] = sort_rows(conform(given, definition), definition).to_batches()
            return arranged[definition]

        def run(job: WriteJob) -> Sequence[TaskOutcome]:
            found = batches(job.table.definition)
            return [job.run(found, "0.0")] if found else []

        definition = self.definition
        batches(definition)  # rows that do not fit are refused before anything begins
        snapshot = self._writer.write(run, overwrite=overwrite, app=number)
        self.in_writer.after_commit(definition)
        return snapshot

    def drop_partitions(self, partitions: Sequence[Mapping[str, Any]]) -> Snapshot | None:
        """Drops partitions with all their rows, as one commit; None if there is nothing in them.

        Args:
            partitions: Values of the partition columns, such as ``[{"day": "2026-01-31"}]``. One that lacks some of
                the columns drops every partition with the values that it has.

        Raises:
            InvalidRequest: the table has no such columns, or a value does not fit. Nothing was changed.
            Conflict: lost against other writers, again and again. Nothing was changed.
        """
        chosen = partition_set(partitions, self.definition)
        return self._writer.drop_partitions(lambda _: Drop(chosen))

    def expire_partitions(self) -> Snapshot | None:
        """Drops the partitions that are older than ``partition.expiration-time``, as one commit; None if none is.

        Raises:
            InvalidRequest: the table has no ``partition.expiration-time`` (``no-expiration-time``).
            Conflict: with ``update-time``: they are written too often to be sure.
        """
        now_ms = self.handle.ambient.now_ms()
        return self._writer.drop_partitions(lambda state: expired(state, now_ms))

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
        """Reads the table: `Scan.to_arrow`, `Scan.to_polars` or `Scan.to_batches` run it.

        Args:
            columns: Which columns; all if None.
            where: A SQL condition such as ``"amount > 10 AND region = 'eu'"``, or a polars expression.
            version: The state of that version (time travel).
            fresh: Also what the log holds beyond the newest snapshot. With ``log.consistency = transactional`` that
                is nothing, since a change becomes visible together with its snapshot.
            timestamp: The state at that time; give either this or `version`.
            tag: The state that has this tag; give only one of the three.

        Raises:
            NotFound: ``snapshot-expired``, here or while it is read: hold old versions with a tag or a consumer.
        """
        if fresh and any(given is not None for given in (version, timestamp, tag)):
            raise InvalidRequest("fresh=True reads the newest state: leave version out", code="bad-time-travel")
        version = self._version(version, timestamp, tag)
        return Scan(self.filestore, self.filestore.state(version), columns, where)

    def get(self, keys: Keys, columns: Sequence[str] | None = None, version: int | None = None) -> pa.Table:
        """The rows of given keys: an Arrow table in the order of the keys.

        A key that has no row is left out, one that is given twice comes once. Whoever asks or writes often keeps the
        `Table`: what is looked up again and again is then found on the local disk, within the bounds of the options
        ``lookup.cache-…`` (files without a name below the system's temporary folder, ``$TMPDIR``).

        Args:
            keys: Arrow or polars with the primary key's columns, a list of dicts with their names, a list of tuples
                in their order, or, if the key is one column, a list of its values.
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

    def follow(
        self,
        scan: str | None = None,
        *,
        timestamp: datetime | None = None,
        version: int | None = None,
        stop: Stop = None,
        consumer: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The table's rows and then its changes as they are committed: Arrow batches with ``_kind``.

        All batches have the columns that the table has now, also those of older and of later versions: a column that
        a version lacks is null in its changes, one that comes later is left out, a renamed one keeps its name.

        Args:
            scan: ``full``: all rows of the newest snapshot as ``+I``, then every later change. ``latest``: later
                changes only. ``from-timestamp``: changes after the state at `timestamp`; all, if the
                table is younger. None: what the table's option ``log.scan`` says.
            timestamp: For ``from-timestamp``.
            version: Instead of `scan`: changes after that version.
            stop: When to end, since it is endless otherwise: a version number to end after, or a `threading.Event`
                or function that says so. All that was committed until then is still given.
            consumer: An id under which the reader's position is kept: what it has still to read does not expire, and
                a later reader with this id goes on there, whatever else it asks for. A version that was not taken
                to its end comes again.

        Raises:
            Unsupported: the table has no log (``log.system = none``).
            NotFound: ``log-gap`` or ``snapshot-expired``: changes are gone; start again with ``scan="full"``.
            Conflict: ``consumer-taken``: another reader took the consumer's id.
            Unsupported: ``schema-changed``: a column was widened since, and a value does not fit its former type.
        """
        return Follower(self.filestore, self.handle.required_log(self.definition)).follow(
            scan, timestamp, version, stop, None if consumer is None else self.consumer(consumer)
        )

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """The table's history, newest first."""
        return self.filestore.snapshots(limit)

    def system(
        self,
        name: str,
        version: int | None = None,
        *,
        from_version: int | None = None,
        to_version: int | None = None,
    ) -> SystemScan:
        """A system table: what is known of this table, or what changed in it (tablestore/SYSTEM_TABLES.md).

        Args:
            name: ``snapshots``, ``schemas``, ``options``, ``tags``, ``partitions``, ``buckets``, ``files``,
                ``audit_log`` or ``changes``.
            version: For options, tags, partitions, buckets and files: as of that version.
            from_version: For ``audit_log``: changes after that version; all, if None. For ``changes``: what leads from
                the rows of that version to those of `to_version`, which may be an earlier one.
            to_version: For the same two; the newest if None.

        Raises:
            NotFound: there is no such system table or version.
            InvalidRequest: it takes no such versions (``bad-versions``).
            Unsupported: ``audit_log`` of a table without a log; a table with a column ``rowkind``.
        """
        return system_scan(self.handle, self.filestore, name, Versions(version, from_version, to_version))

    def files(self, version: int | None = None) -> list[DataFile]:
        """The live data files, by path."""
        return sorted(self.filestore.state(version).files.values(), key=lambda f: f.path)

    def detail(self) -> dict[str, Any]:
        """What the table is and holds now, as plain values."""
        return detail_of(self.handle, self.filestore.state())

    def alter(self, *changes: Change | str) -> Snapshot:
        """Changes columns, comments and options as one commit; all of the changes or none.

        Adding, moving, NOT NULL to nullable, comments and options cost nothing. Dropping, renaming and widening write
        all files anew, or with ``schema.evolution-mode = metadata`` switch on features of Delta that some readers
        lack. Writers and readers go on meanwhile.

        Args:
            changes: In SQL's words, such as ``"ADD COLUMN note STRING AFTER id"`` (`CHANGE_FORMS` in
                `filestore.model.change_text` has all of them), or as values of `filestore.model.changes`. They are
                made in their order.

        Returns:
            The snapshot from which on the table is as asked for. Its ``notes`` say which readers are shut out by it.

        Raises:
            InvalidRequest: a change that cannot be made. Nothing was changed.
            NotFound: there is no such column.
            Conflict: other changes of the table were faster, again and again. Nothing was changed.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        return alter_table(self.handle, self.filestore, parse_changes(changes))

    def plan_alter(self, *changes: Change | str) -> Evolution:
        """What `alter` would do, and which readers it would shut out. Changes nothing; errors as of `alter`."""
        return plan_alter(self.filestore, parse_changes(changes))

    def compact(self, full: bool = False) -> Snapshot | None:
        """Folds pending runs and merges sorted ones: of the buckets that have many, or of all with ``full=True``.

        Returns:
            The last snapshot that it made; None if no bucket needed anything.
        """
        folded = fold_table(self.filestore, full=full)
        compacted = compact_table(self.filestore, full=full)
        return bury(self.filestore) or compacted or folded

    def create_tag(self, name: str, version: int | None = None, *, timestamp: datetime | None = None) -> Tag:
        """Names a version (the newest one, if neither is given), which does not expire before the tag is deleted.

        Raises:
            InvalidRequest: ``bad-tag-name``.
            AlreadyExists: ``tag-exists``.
            NotFound: ``no-such-version``, ``snapshot-expired``.
        """
        return create_tag(self.filestore, name, self._version(version, timestamp, None))

    def delete_tag(self, name: str) -> None:
        """Takes a tag away; its version may expire then. `NotFound` (``no-such-tag``)."""
        delete_tag(self.filestore, name)

    def tags(self) -> list[Tag]:
        """All tags, by name."""
        return list(tags_of(self.filestore.state()).values())

    def rollback(
        self, version: int | None = None, *, timestamp: datetime | None = None, tag: str | None = None
    ) -> Snapshot:
        """Makes the table's rows those of an older version again, as a new version; the log gets what that changes.

        Columns and options stay those of now; columns that came since are null. Numbers of apps and of streaming
        queries stay, too: a batch that was rolled back is not written again.

        Raises:
            InvalidRequest: none or more than one of version, timestamp and tag.
            NotFound: ``no-such-version``, ``no-such-tag``, ``snapshot-expired``.
            Unsupported: ``rollback-over-schema``: files were written anew since, for columns that changed.
            Conflict: the table's columns or options changed meanwhile. No row was changed.
            Unavailable: a store did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
        """
        wanted = self._version(version, timestamp, tag)
        if wanted is None:
            raise InvalidRequest("say where to: give version, timestamp or tag", code="bad-time-travel")
        return rollback(self.filestore, self.handle.log(self.definition), wanted)

    def consumer(self, consumer_id: str) -> Consumer:
        """A reader's hold: ``with table.consumer("report").register(7): ...`` keeps version 7 and later ones."""
        return Consumer(self.filestore, consumer_id)

    def consumers(self) -> list[ConsumerInfo]:
        """The consumers that were heard of within ``consumer.expiration-time``, by id."""
        return consumers_of(self.filestore)

    def delete_consumer(self, consumer_id: str) -> None:
        """Forgets a consumer whose reader will not come back. `NotFound` (``no-such-consumer``)."""
        forget_consumer(self.filestore, consumer_id)

    def expire(self, *, dry_run: bool = False) -> Expiry:
        """Lets old versions expire as the options ``snapshot.*`` say, but for those of tags and consumers."""
        return expire(self.filestore, dry_run=dry_run)

    def maintain(self) -> Maintenance:
        """Creates the tag that is due and lets versions expire: call it from time to time. Safe to repeat."""
        return maintain(self.filestore)

    def remove_orphans(self, older_than: timedelta = timedelta(days=1), *, dry_run: bool = True) -> list[Leftover]:
        """Removes files that no version names and no writer at work can still mean to commit.

        Args:
            older_than: How long ago they were written. IMPORTANT: longer than any write takes of a table without a log,
                or any compaction, since only writes beside a log are seen at work.
            dry_run: Only list them.
        """
        before_ms = self.handle.ambient.now_ms() - older_than // timedelta(milliseconds=1)
        orphans = find_orphans(self.filestore, before_ms, lambda: at_work_since_ms(self.location))
        if not dry_run:
            remove_orphans(self.filestore, orphans)
        return orphans

    def examine(self) -> Report:
        """Checks every invariant of FORMAT.md on the stored bytes; what ``tablestore doctor`` prints."""
        return examine(self.filestore)

    def writer(self) -> TableWriter:
        """What writes the table, for code that brings its rows in another way, such as Spark."""
        return self._writer

    def version_at(self, timestamp: datetime) -> int:
        """The newest version committed at or before that time; `NotFound` if the table is younger."""
        return self.filestore.version_at(milliseconds(timestamp))

    def _version(self, version: int | None, timestamp: datetime | None, tag: str | None) -> int | None:
        if sum(given is not None for given in (version, timestamp, tag)) > 1:
            raise InvalidRequest("give only one of version, timestamp and tag", code="bad-time-travel")
        if tag is not None:
            return tag_of(self.filestore.state(), tag).version
        return version if timestamp is None else self.version_at(timestamp)

"""`Table`: one managed table without Spark, on the same kernel as `tablestore.spark`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from compaction.folding import fold_table
from compaction.in_writer import InWriter
from compaction.local import compact_table
from compaction.maintenance import Maintenance, maintain
from compaction.tombstones import bury
from filestore.alter import plan_alter
from filestore.arguments import checks_arguments
from filestore.checks.leftovers import Leftover
from filestore.doctor import Report, examine
from filestore.errors import InvalidRequest, TableStoreError
from filestore.life.expiry import Expiry, expire
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.life.retention import Tag, tags_of
from filestore.life.tags import create_tag, delete_tag
from filestore.model.change_text import parse_changes
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.evolution import Evolution
from filestore.model.files import DataFile
from filestore.model.snapshot import Snapshot
from filestore.rows.partitions import partition_set
from filestore.sorting.order import sort_rows
from tablestore.detail import detail_of
from tablestore.given import Rows, arrow_rows
from tablestore.handle import TableHandle
from tablestore.incoming import conform
from tablestore.logcare.care import LogCare
from tablestore.recovering.lease import at_work_since_ms
from tablestore.system.scan import SystemScan, Versions, system_scan
from tablestore.table_reads import TableReads
from tablestore.writing.altering import alter_table
from tablestore.writing.apps import app_version
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.expiry import expired
from tablestore.writing.overwrite import Drop, Overwrite
from tablestore.writing.rollback import rollback
from tablestore.writing.transaction import TableWriter
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["Table"]


@checks_arguments("rows")
class Table(TableReads, LogCare):
    """A managed table. Get it from `Store.table`; it may be kept, and always works on the newest version."""

    def __init__(self, handle: TableHandle) -> None:
        super().__init__(handle)
        meter = CommitMeter(handle.meter, handle.identifier, handle.ambient)
        self._writer = TableWriter(self.filestore, handle.log, handle.ambient, meter=meter)
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

    def write(self, rows: Rows, overwrite: Overwrite = False, *, app: tuple[str, int] | None = None) -> Snapshot:
        """Writes rows as one commit: upserts if the table has a primary key, else inserts.

        Args:
            rows: Arrow, polars, a pandas frame (its index is ignored, and what pandas takes for missing is null), a
                list of dicts (a key that a dict lacks is null), or anything with ``__arrow_c_stream__``. A column
                ``_kind`` (``+I``, ``-U``, ``+U``, ``-D``) says what each row does; without it a row is put, replacing
                the one with its key. Of rows with one key the last wins.
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
        definition = self.definition
        given, arranged = arrow_rows(rows, self.schema), dict[TableDefinition, list[pa.RecordBatch]]()

        def batches(definition: TableDefinition) -> list[pa.RecordBatch]:
            """Worked out again only if the table's definition is changed meanwhile."""
            if definition not in arranged:
                arranged[definition] = sort_rows(conform(given, definition), definition).to_batches()
            return arranged[definition]

        def run(job: WriteJob) -> Sequence[TaskOutcome]:
            found = batches(job.table.definition)
            return [job.run(found, "0.0")] if found else []

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

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """The table's history, newest first; the newest `limit` versions, if it is given.

        Raises:
            InvalidRequest: ``bad-limit``: a limit below one.
        """
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit={limit} is not above zero: leave it out for all versions", code="bad-limit")
        return self.filestore.snapshots(None if limit is None else min(limit, sys.maxsize))

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
        return create_tag(self.filestore, name, self.version_of(version, timestamp, None))

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
        wanted = self.version_of(version, timestamp, tag)
        if wanted is None:
            raise InvalidRequest("say where to: give version, timestamp or tag", code="bad-time-travel")
        with self._writer.mending():
            return rollback(self.filestore, self.handle.log(self.definition), wanted)

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

"""`SparkStore`: tables as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike, fspath
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compaction.in_writer import InWriter
from compaction.on_request import compact_on_request
from filestore.ambient import system_ambient
from filestore.arguments import checks_arguments
from filestore.commit.proposal import AppVersion
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.metrics.meter import NO_METER
from filestore.model.schema import Schema
from filestore.model.snapshot import Snapshot
from filestore.operations.fold import fold_table
from filestore.retention.rules import tag_of
from tablestore.defaults import PREFIX, table_defaults, with_defaults
from tablestore.following.gaps import OnGap
from tablestore.following.result_mode import Mode, ResultMode
from tablestore.following.starting import ScanFrom
from tablestore.incoming.moments import in_utc
from tablestore.lookup.request import Expired, Kind, LookupRequest
from tablestore.reading.log_tail import VisibleTail
from tablestore.spark.batch.compaction import spark_changes, spark_compaction, spark_folds
from tablestore.spark.batch.lookup_join import joined_by_lookup
from tablestore.spark.batch.overlays import read_fresh, read_overlaid
from tablestore.spark.batch.scans import use_plain_scans
from tablestore.spark.batch.view_rows import TableReader
from tablestore.spark.batch.whole_files import read_whole
from tablestore.spark.batch.writing import spark_runner
from tablestore.spark.interpreter import work_with_this_python
from tablestore.spark.kafka.table import SparkKafkaTable
from tablestore.spark.opened import identity_options
from tablestore.spark.source import TableStoreSource
from tablestore.spark.streaming.metrics import StreamMetrics
from tablestore.spark.streaming.options import StreamOptions
from tablestore.spark.streaming.query_id import QueryId
from tablestore.spark.views import StoreViews
from tablestore.store import Store
from tablestore.system.names import split_name
from tablestore.system.scan import Versions
from tablestore.table import Table
from tablestore.writing.commit_metrics import CommitMeter
from tablestore.writing.overwrite import Overwrite
from tablestore.writing.write import Basis
from tablestore.writing.writer import TableWriter

__all__ = ["SparkStore"]


@checks_arguments()
class SparkStore(StoreViews):
    """The tables of a `Store` in a Spark session. Rows never pass the driver.

    Args:
        spark: A session with Delta, such as `spark_session` makes.
        store: From `tablestore.connect`.
    """

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self.spark = spark
        self.store = store
        self._writers: dict[str, _Writer] = {}
        self._streams: StreamMetrics | None = None
        work_with_this_python(SparkContext._active_spark_context)
        spark.dataSource.register(TableStoreSource)

    def sql(self, statement: str) -> DataFrame:
        """Runs a statement, as ``spark.sql`` does (docs/sql.md)."""
        return self.spark.sql(statement)

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Schema | str,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Makes a table as `Store.create_table` does; ``table-storage.*`` of ``spark.conf`` are its default options."""
        return self.store.create_table(
            name,
            schema,
            primary_key=primary_key,
            partition_by=partition_by,
            options=with_defaults(self._defaults(), options or {}, keyed=bool(primary_key)),
            comment=comment,
            if_not_exists=if_not_exists,
        )

    def _defaults(self) -> dict[str, str]:
        return table_defaults({key: v for key, v in self.spark.conf.getAll.items() if key.startswith(PREFIX)})

    def kafka_table(self, name: str) -> SparkKafkaTable:
        """A Kafka table: its changes as DataFrames, batch and stream. All other methods here are for managed tables.

        Raises:
            NotFound: there is none.
            Unsupported: ``managed-table``: it is not a Kafka topic.
        """
        return SparkKafkaTable(self.spark, self.store.kafka_table(name), system_ambient())

    def write(
        self, name: str, df: DataFrame, overwrite: Overwrite = False, *, if_version: int | None = None
    ) -> Snapshot:
        """Writes a DataFrame as one commit: upserts if the table has a primary key, else inserts.

        Args:
            name: ``database.table``.
            df: Columns are matched by name. A column ``_kind`` says what each row does; without it a row is put.
            overwrite: True: the rows replace the whole table. ``"dynamic"``: the partitions that they have.
                ``{"day": "2026-01-31"}``, or a list of such: those partitions, as in `tablestore.Table.write`.
            if_version: The version from which the rows were worked out, as in `tablestore.Table.write`.

        Returns:
            The snapshot: ``.version``, ``.timestamp``, ``.log_offsets`` by bucket.

        Raises:
            InvalidRequest: rows that do not fit. Nothing was changed.
            Conflict: lost against other writers. Nothing was changed. ``read-changed``: with `if_version`.
        """
        return self._write(self._writer(self.store.table(name)), df, overwrite, None, Basis.of(if_version))

    def write_read(self, name: str, df: DataFrame, overwrite: Overwrite, version: int) -> Snapshot:
        """Writes rows that were worked out from any rows of a version: none of the table may have changed since.

        It is for statements of SQL that read the table that they write. Errors are those of `write` with `if_version`.
        """
        return self._write(self._writer(self.store.table(name)), df, overwrite, None, Basis(version, whole=True))

    def merge(self, name: str, df: DataFrame, *, if_version: int | None = None, whole: bool = False) -> Snapshot:
        """Writes a DataFrame as `write` does, if it puts each key once: the rows of a ``MERGE``.

        Args:
            name: ``database.table``.
            df: As for `write`. A row that deletes a key precedes the one that puts it.
            if_version: The version of the table itself from whose rows these were worked out.
            whole: Whether they rest on any rows of it, and not on those of their keys alone: no row may have changed.

        Raises:
            InvalidRequest: ``repeated-key``: two rows have one key. Nothing was changed. Or as `write`.
        """
        basis = Basis(if_version, whole=whole)
        return self._write(self._writer(self.store.table(name)), df, False, None, basis, each_key_once=True)

    def write_in_order(self, name: str, df: DataFrame) -> Snapshot:
        """Writes a DataFrame as `write` does, if each delete in it removes the row of its key: the changes of a topic.

        Raises:
            InvalidRequest: ``delete-without-sequence``. Nothing was changed. Or as `write`.
        """
        return self._write(self._writer(self.store.table(name)), df, False, None, in_order=True)

    def read(
        self,
        name: str,
        version: int | None = None,
        timestamp: datetime | None = None,
        fresh: bool = False,
        *,
        tag: str | None = None,
        from_version: int | None = None,
        to_version: int | None = None,
    ) -> DataFrame:
        """The table as a native Delta scan: Catalyst prunes columns and pushes filters.

        Args:
            name: ``database.table``; or a system table such as ``database.table$files`` (tablestore/SYSTEM_TABLES.md).
            version: The state of that version.
            timestamp: The state at that time.
            fresh: Also what the log holds beyond the newest snapshot, up to its end as this is called: with
                ``log.consistency = eventual`` those are the rows of writers at work, and of writers that failed
                until their rows are undone. One job puts them beside the version, a task a bucket. A transactional
                log holds nothing beyond the snapshot.
            tag: The state that has this tag.
            from_version: Of ``audit_log`` and ``changes``: see `tablestore.Table.system`.
            to_version: Likewise.

        Raises:
            InvalidRequest: more than one of version, timestamp, tag and fresh, or what a system table does not take.
            NotFound: there is no such table, or it has no such version or tag.
        """
        if sum((version is not None, timestamp is not None, tag is not None, fresh)) > 1:
            raise InvalidRequest("give only one of version, timestamp, tag and fresh", code="bad-time-travel")
        name, system = split_name(name)
        table = self.store.table(name)
        if timestamp is not None:
            version = table.version_at(timestamp)
        if tag is not None:
            version = tag_of(table.filestore.state(), tag).version
        if system is not None:
            return self._system(table, system, Versions(version, from_version, to_version))
        if from_version is not None or to_version is not None:
            raise InvalidRequest(
                f"from_version and to_version are for {name}$changes and {name}$audit_log", code="bad-versions"
            )
        return self._rows(table, version, fresh=fresh)

    def _rows(self, table: Table, version: int | None, *, fresh: bool = False) -> DataFrame:
        state = table.filestore.state(version)  # Delta's own error for a version that is not there is none of ours
        if fresh and (found := self._fresh(table, state)) is not None:
            return found
        if state.pending:
            return read_overlaid(self.spark, table.filestore, state)
        use_plain_scans(self.spark, table.filestore)
        return read_whole(self.spark, table.location, state, version)

    def _reader(self, session: SparkSession, open_table: Callable[[str], Table]) -> TableReader:
        lake = SparkStore(session, self.store)

        def changes(name: str, since: int, until: int) -> DataFrame:
            return lake._system(open_table(name), "changes", Versions(None, since, until, columns=until))

        return TableReader(lambda name, version: lake._rows(open_table(name), version), changes)

    def _fresh(self, table: Table, state: TableState) -> DataFrame | None:
        tail = VisibleTail.of(table.opened, state.definition)
        return None if tail is None else read_fresh(self.spark, tail, state)

    def _system(self, table: Table, name: str, versions: Versions) -> DataFrame:
        # raises what is wrong with the request
        table.system(name, versions.at, from_version=versions.after, to_version=versions.until)
        reader = self.spark.read.format("tablestore").options(**identity_options(table.opened))
        for option, value in (
            ("version", versions.at),
            ("fromVersion", versions.after),
            ("toVersion", versions.until),
            ("columnsVersion", versions.columns),
        ):
            reader = reader if value is None else reader.option(option, value)
        return reader.load(f"{table.identifier}${name}")

    def read_stream(  # noqa: PLR0913  # what a reader can choose are its arguments
        self,
        name: str,
        scan: ScanFrom | None = None,
        *,
        timestamp: datetime | None = None,
        version: int | None = None,
        tag: str | None = None,
        mode: Mode = "upsert",
        max_rows_per_batch: int | None = None,
        max_versions_per_batch: int | None = None,
        consumer: str | None = None,
        on_log_gap: OnGap = "fail",
    ) -> DataFrame:
        """The table's changes as a streaming DataFrame with ``_kind``: the snapshot's rows first, then the log.

        Changes of one key keep their order within a micro-batch: they are in one partition. A restarted query goes
        on exactly where its checkpoint says. The query's progress shows where it is (``endOffset``) and the newest
        version (``latestOffset``).

        Args:
            name: ``database.table``.
            scan: Where it begins, as in `tablestore.Table.follow`: ``full``, ``latest``, ``from-timestamp``; None: what
                the table's option ``log.scan`` says.
            timestamp: Likewise.
            version: Likewise.
            tag: Likewise.
            mode: ``upsert`` or ``changelog``: which rows stand for an update, as in `tablestore.Table.follow`.
            max_rows_per_batch: The most rows of a micro-batch, which may end within a version. Files come whole: those
                of the snapshot, and in mode ``changelog`` the changes of a bucket.
            max_versions_per_batch: The most versions of a micro-batch.
            consumer: An id under which the table knows what the query has still to read, so that it does not expire. A
                query without a checkpoint goes on where the last one with this id was: a batch may come again.
            on_log_gap: ``fail``, or ``rescan``: if changes are gone, go on from the newest version, as in
                `tablestore.Table.follow`. If the version before is gone, too, all rows are read again, and
                ``rescans`` in the query's ``endOffset`` grows: there are no deletes of rows deleted meanwhile.

        Raises:
            InvalidRequest: options that do not fit (`tablestore.spark.streaming.options`).
            NotFound: there is no such table.
            Unsupported: with mode ``upsert``: the table has no log (``log.system = none``).
        """
        given = {
            "scan": scan,
            "timestamp": None if timestamp is None else in_utc(timestamp).isoformat(),
            "version": version,
            "tag": tag,
            "mode": mode,
            "maxRowsPerBatch": max_rows_per_batch,
            "maxVersionsPerBatch": max_versions_per_batch,
            "consumerId": consumer,
            "onLogGap": on_log_gap,
        }
        return self.stream_of(name, {option: str(value) for option, value in given.items() if value is not None})

    def stream_of(self, name: str, options: Mapping[str, str], *, with_kind: bool = True) -> DataFrame:
        """The same by the options of ``readStream.format("tablestore")``, and perhaps without ``_kind``.

        Without it, an update or a delete ends the query (``changes-needed``), since it would look like an insert.
        """
        asked = StreamOptions.parse(options)
        table = self.store.table(name)
        if asked.mode is ResultMode.UPSERT:
            table.opened.required_log()
        if asked.consumer is not None:
            table.consumer(asked.consumer)  # refuses a bad id before anything starts
        self._measure(table)
        reader = self.spark.readStream.format("tablestore").options(**identity_options(table.opened))
        return reader.options(**options).option("changes", str(with_kind).lower()).load(name)

    def _measure(self, table: Table) -> None:
        """Measures queries that read it, if the store has a meter."""
        if table.opened.meter is NO_METER:
            return
        if self._streams is None:
            self._streams = StreamMetrics()
            self.spark.streams.addListener(self._streams)
        self._streams.watch(table)

    def write_stream(
        self, name: str, df: DataFrame, *, checkpoint: str | PathLike[str], trigger: dict[str, Any] | None = None
    ) -> StreamingQuery:
        """Writes a streaming DataFrame, each micro-batch as one commit, exactly once.

        The commit carries the query's id and the batch's number, so a batch that is replayed after a crash changes
        nothing.

        Args:
            name: ``database.table``.
            df: A streaming DataFrame, as for `write`.
            checkpoint: Where Spark keeps the query's progress.
            trigger: Spark's trigger, such as ``{"processingTime": "1 second"}`` or ``{"availableNow": True}``.
        """
        writer = self._writer(self.store.table(name))
        place = fspath(checkpoint)
        query_id = QueryId(self.spark, place)

        def batch(rows: DataFrame, number: int) -> None:
            self._write(writer, rows, False, AppVersion(f"spark.{query_id()}", number))

        stream = df.writeStream.foreachBatch(batch).option("checkpointLocation", place)
        return (stream.trigger(**trigger) if trigger else stream).start()

    def write_batch(
        self, name: str, rows: DataFrame, query_id: str, number: int, *, overwrite: Overwrite = False
    ) -> Snapshot:
        """Writes a micro-batch of a query, unless the table has it already; for ``foreachBatch`` of one's own.

        Args:
            name: ``database.table``.
            rows: As for `write`.
            query_id: The query's id, which stays the same over its restarts.
            number: The batch's number.
            overwrite: As for `write`.
        """
        app = AppVersion(f"spark.{query_id}", number)
        return self._write(self._writer(self.store.table(name)), rows, overwrite, app)

    def lookup_join(  # noqa: PLR0913  # what a join can choose are its arguments
        self,
        df: DataFrame,
        name: str,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        kind: Kind = "left",
        columns: Sequence[str] | None = None,
        prefix: str = "",
        at: str | None = None,
        fresh: bool = False,
        expired: Expired = "fail",
    ) -> DataFrame:
        """Joins a DataFrame, batch or streaming, with the rows of a table that have their key (docs/lookup-joins.md).

        Its rows are not shuffled. Without `at` a batch DataFrame reads the version that is the newest one now, and each
        micro-batch of a streaming query the newest one when it runs; the query's progress has it in
        ``observedMetrics``, under ``lookup database.table``.

        Args:
            df: The rows.
            name: ``database.table``.
            on: The columns that have to be equal, as in `tablestore.Table.lookup`; likewise all others.
            kind: ``left``, or ``inner``.
            columns: The columns of the table in the result; None: all but those of `on`.
            prefix: Is put before their names in the result.
            at: The rows' column with a time: each row meets the newest version that was committed at or before it. None
                or ``processing``: the version that is the newest one, as above.
            fresh: Reads also what an eventual log has beyond that version, up to its end at that time.
            expired: With `at`, where a version has expired: ``fail``, or ``oldest``.

        Raises:
            InvalidRequest: as in `tablestore.Table.lookup`.
            NotFound: there is no such table or column.
        """
        asked = LookupRequest(on, kind, columns, prefix, at, expired)
        return joined_by_lookup(self.spark, self.store.table(name).opened, df, asked, fresh=fresh)

    def compact(
        self, name: str, full: bool = False, *, partitions: Sequence[Mapping[str, Any]] | None = None
    ) -> Snapshot | None:
        """Folds pending runs and merges sorted ones as Spark jobs, each bucket in a task: rows never pass the driver.

        Readers and writers go on meanwhile.

        Args:
            name: ``database.table``.
            full: Make one clean run of every bucket; otherwise only buckets that need it are merged.
            partitions: The partitions, as `Table.drop_partitions` takes them; all if None.

        Returns:
            The snapshot; None if no bucket needed it.

        Raises:
            Conflict: another compaction or an overwrite was faster in all buckets. Nothing was changed.
            NotFound: there is no such table.
            InvalidRequest: the table has no such partition columns.
        """
        table = self.store.table(name).filestore
        folds, merges = spark_folds(self.spark), spark_compaction(self.spark)
        return compact_on_request(table, full=full, partitions=partitions, fold_runner=folds, runner=merges)

    def fold(self, name: str) -> Snapshot | None:
        """Folds pending runs as Spark jobs; returns the snapshot, or None if there were none. Errors: see `compact`."""
        return fold_table(self.store.table(name).filestore, full=True, runner=spark_folds(self.spark))

    def _writer(self, table: Table) -> _Writer:
        """Returns the table's writer, which is kept: it knows what it has repaired, and compacts beside its commits."""
        opened = table.opened
        if (known := self._writers.get(opened.identity.table_id)) is not None:
            return known
        meter = CommitMeter(opened.meter, opened.identity.identifier, opened.ambient)
        writer = _Writer(
            TableWriter(table.filestore, opened.log_config, opened.ambient, spark_changes(self.spark), meter),
            InWriter(table.filestore, spark_compaction(self.spark), spark_folds(self.spark)),
        )
        return self._writers.setdefault(opened.identity.table_id, writer)

    def _write(
        self,
        writer: _Writer,
        df: DataFrame,
        overwrite: Overwrite,
        app: AppVersion | None,
        basis: Basis | None = None,
        *,
        each_key_once: bool = False,
        in_order: bool = False,
    ) -> Snapshot:
        definition = writer.table.definition
        rows = spark_runner(df, definition, each_key_once=each_key_once)
        snapshot = writer.table.write(rows, overwrite=overwrite, app=app, retries=True, basis=basis, in_order=in_order)
        writer.compaction.after_commit(definition)
        return snapshot


@dataclass(frozen=True, slots=True)
class _Writer:
    """The writer that a store keeps for a table, and its compaction."""

    table: TableWriter
    compaction: InWriter

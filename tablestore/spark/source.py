"""Implements ``format("tablestore")``: a Python data source of Spark that reads and writes in batches and streams.

Light to import, since `pyspark_tablestore` is imported for every session on the machine, whatever it reads: readers and
writers are imported at their first use.

Spark calls all this in processes of its own and hands errors on as text: a query raises Spark's `PySparkException` or
`StreamingQueryException`. `tablestore.spark.error_of` finds the error of `filestore.errors` in it.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StringType, StructType

__all__ = ["TableStoreSource"]


class TableStoreSource(DataSource):
    """A source by options: ``path`` (``database.table``), ``catalog``, ``token-file``; for streams `StreamOptions`.

    A path such as ``shop.orders$files`` is a system table, to be read in batches (see tablestore/SYSTEM_TABLES.md).
    With ``changes = true`` rows have ``_kind``. A stream without it refuses updates and deletes, which would
    look like inserts. Rows of Kafka tables always have it; their options are those of `KafkaRead`.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tablestore"

    def schema(self) -> StructType:
        """The table's columns, and ``_kind`` with ``changes = true`` or of a Kafka table."""
        from filestore.model.rowkind import KIND_COLUMN  # here and below: see above
        from filestore.model.schema import Schema
        from tablestore.following.follow import change_schema
        from tablestore.spark.batch.pinned_version import pinned_type, wants_pin
        from tablestore.spark.batch.reading import wants_changes
        from tablestore.spark.batch.system_tables import system_type
        from tablestore.spark.kafka.options import kafka_read
        from tablestore.spark.opened import opened
        from tablestore.system.names import split_name

        if wants_pin(self.options):
            return pinned_type()
        if (system := split_name(self.options.get("path", ""))[1]) is not None:
            return system_type(self.options, system)
        if (asked := kafka_read(self.options)) is not None:
            from tablestore.spark.kafka.reading import kafka_type

            return kafka_type(asked)
        definition = opened(self.options).definition
        fields = StructType.fromJson(definition.schema.plain().to_delta())
        if not wants_changes(self.options):
            return fields
        nullable = StructType.fromJson(
            Schema.from_arrow(change_schema(definition.schema.to_arrow()).remove(len(fields))).to_delta()
        )
        return nullable.add(KIND_COLUMN, StringType())

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from tablestore.spark.batch.pinned_version import PinnedVersionReader, wants_pin
        from tablestore.spark.batch.reading import BatchReader
        from tablestore.spark.batch.system_tables import SystemReader
        from tablestore.spark.kafka.options import kafka_read
        from tablestore.system.names import split_name

        if wants_pin(self.options):
            return PinnedVersionReader(dict(self.options))
        if (system := split_name(self.options.get("path", ""))[1]) is not None:
            return SystemReader(dict(self.options), system)
        if (asked := kafka_read(self.options)) is not None:
            from tablestore.spark.kafka.reading import KafkaBatchReader

            return KafkaBatchReader(asked)
        return BatchReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write; ``mode("overwrite")`` replaces the whole table, or some partitions (see `BatchWriter`)."""
        from tablestore.spark.batch.sink import BatchWriter
        from tablestore.system.names import refuse_system

        refuse_system(self.options.get("path", ""))
        return BatchWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  # Spark's name
        """A stream into the table: each micro-batch is one commit."""
        from tablestore.spark.batch.sink import StreamWriter
        from tablestore.system.names import refuse_system

        refuse_system(self.options.get("path", ""))
        return StreamWriter(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """A stream of changes."""
        from tablestore.spark.kafka.options import kafka_read
        from tablestore.spark.streaming.changes import ChangeReader
        from tablestore.system.names import refuse_system

        refuse_system(self.options.get("path", ""))
        if (asked := kafka_read(self.options)) is not None:
            from tablestore.spark.kafka.reading import KafkaStreamReader

            return KafkaStreamReader(asked)
        return ChangeReader(dict(self.options), schema)

"""Reads system tables in Spark: plans them beside the driver from metadata, and reads them in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from filestore.errors import InvalidRequest
from filestore.model.schema import Column
from filestore.rows.casting import cast_rows
from filestore.sorting.runs import local_runs
from managed_table.opened import OpenedTable
from tablestore.spark.opened import opened
from tablestore.system.changes import AuditPart, ChangesPart, audit_parts, changes_parts
from tablestore.system.scan import Versions, metadata_rows, system_schema

__all__ = ["SystemReader", "system_type"]


def system_type(options: Mapping[str, str], name: str) -> StructType:
    """The columns of a system table as Spark's."""
    schema = system_schema(name, opened(options).filestore.state(_versions(options).columns).definition)
    fields = [Column(field.name, field.type).to_delta() for field in schema]
    return StructType.fromJson({"type": "struct", "fields": fields})


@dataclass
class _MetadataPartition(InputPartition):
    """A system table whose rows are made from the Delta log, up to a version."""

    table: OpenedTable
    name: str
    version: int


@dataclass
class _RowsPartition(InputPartition):
    """A part of ``audit_log`` or ``changes``."""

    part: AuditPart | ChangesPart


class SystemReader(DataSourceReader):
    """Plans and reads ``spark.read.format("tablestore").load("shop.orders$files")``.

    Options beside those of a table: ``version``, ``fromVersion``, ``toVersion``, and ``columnsVersion``, of ``changes``
    the version whose columns the rows have.
    """

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        self._name = name
        self._table = opened(options)
        self._versions = _versions(options)
        self._versions.check(name)
        self._schema = system_schema(name, self._table.filestore.state(self._versions.columns).definition)

    def partitions(self) -> Sequence[InputPartition]:
        """One of metadata; of changes one for each slot, of the log one for each bucket and some versions."""
        store, versions = self._table.filestore, self._versions
        match self._name:
            case "audit_log":
                log = self._table.own_log()
                return [_RowsPartition(part) for part in audit_parts(store, log, versions.after, versions.until)]
            case "changes":
                assert versions.after is not None
                until = store.state().version if versions.until is None else versions.until
                return [_RowsPartition(part) for part in changes_parts(store, versions.after, until, versions.columns)]
        return [_MetadataPartition(self._table, self._name, store.state(versions.at).version)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a part of the system table; runs in a task."""
        for rows in _rows(partition):
            yield from cast_rows(rows, self._schema).to_batches()


def _rows(partition: InputPartition) -> Iterator[pa.Table]:
    # Spark replaces an empty list of partitions by one that is no partition
    if isinstance(partition, _MetadataPartition):
        yield from metadata_rows(partition.table.filestore, partition.name, partition.version)
    elif isinstance(partition, _RowsPartition):
        part = partition.part
        yield from part.rows() if isinstance(part, AuditPart) else part.rows(local_runs)


def _versions(options: Mapping[str, str]) -> Versions:
    given = {name.lower(): value for name, value in options.items()}
    names = ("version", "fromVersion", "toVersion", "columnsVersion")
    return Versions(*(_number(name, given.get(name.lower())) for name in names))


def _number(name: str, text: str | None) -> int | None:
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise InvalidRequest(f"{name}={text!r} is not the number of a version", code="bad-option-value")
    return None if text is None else int(text)

"""Requests and answers about tables and their snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from catalog_service.wire.columns import ColumnInfo, ColumnSpec, column_specs, table_columns
from catalog_service.wire.messages import AnswerModel, OptionText, RequestModel, with_examples
from filestore.model.schema import Schema
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from managed_table.identity import TableIdentity

__all__ = ["AlterTable", "CreateTable", "CurrentSnapshot", "SnapshotInfo", "SnapshotPage", "TableInfo"]

_TABLE_ID = "6f1c2f0e-9d3b-4c39-8a53-0c7f0a2d7c11"
_LOCATION = "/data/warehouse/shop/orders"
_CREATED = "2026-11-21T12:00:00Z"


# ---------------------------------------------------------------------------------------------- tables


class CreateTable(RequestModel):
    """The body of ``POST /databases/{database}/tables``; it has either `columns` or `schema`."""

    model_config = ConfigDict(
        populate_by_name=True,
        serialize_by_alias=True,
        json_schema_extra={
            "examples": [
                {
                    "name": "orders",
                    "columns": [
                        {"name": "id", "type": "BIGINT"},
                        {"name": "amount", "type": "DECIMAL(10,2)", "comment": "in euros"},
                        {"name": "placed_at", "type": "TIMESTAMP", "nullable": False},
                    ],
                    "primary_key": ["id"],
                    "options": {"bucket": "4"},
                    "comment": "One row an order",
                },
                {
                    "name": "orders",
                    "schema": "id BIGINT, amount DECIMAL(10,2) COMMENT 'in euros', placed_at TIMESTAMP NOT NULL",
                    "primary_key": ["id"],
                },
                {
                    "name": "payments",
                    "schema": "id BIGINT, amount DOUBLE, at TIMESTAMP METADATA FROM 'timestamp', "
                    "PRIMARY KEY (id) NOT ENFORCED",
                    "options": {
                        "connector": "upsert-kafka",
                        "topic": "payments",
                        "properties.bootstrap.servers": "broker:9092",
                        "key.format": "json",
                        "value.format": "json",
                    },
                },
            ]
        },
    )

    name: str = Field(description="ASCII letters, digits and underscores, a letter first; stored in lower case.")
    columns: tuple[ColumnSpec, ...] | None = None
    sql_schema: str | None = Field(
        None,
        alias="schema",
        description="A SQL column list, instead of `columns`; it may contain PRIMARY KEY (…) NOT ENFORCED.",
    )
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: dict[str, OptionText] = Field(default_factory=dict)
    comment: str | None = None

    @model_validator(mode="after")
    def _one_schema(self) -> Self:
        if (self.columns is None) == (self.sql_schema is None):
            raise ValueError("pass either 'columns' or 'schema' (a SQL column list), not both or neither")
        return self

    @classmethod
    def of(
        cls,
        name: str,
        schema: Schema | TableColumns | str,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> CreateTable:
        """Makes a request from columns or a SQL column list."""
        text = schema if isinstance(schema, str) else None
        columns = None if isinstance(schema, str) else tuple(column_specs(schema))
        return cls(
            name=name,
            columns=columns,
            sql_schema=text,
            primary_key=tuple(primary_key),
            partition_by=tuple(partition_by),
            options=dict(options or {}),
            comment=comment,
        )


class AlterTable(RequestModel):
    """The body of ``PATCH /databases/{database}/tables/{table}``."""

    model_config = with_examples({"changes": ["ADD COLUMN note STRING AFTER id", "COMMENT 'One row an order'"]})

    changes: tuple[str, ...] = Field(
        min_length=1, max_length=1000, description="Clauses as after ALTER TABLE in SQL; all are applied or none."
    )


class CurrentSnapshot(AnswerModel):
    """The content of a table's newest version."""

    version: int = Field(description="The version of the Delta table, from 0.")
    timestamp: datetime
    files: int = Field(description="The number of live data files.")
    bytes: int = Field(description="The size of all live data files.")
    rows: int = Field(description="The number of live rows: the files' rows without those in deletion vectors.")
    log_offsets: dict[int, int] = Field(description="By bucket: the end of the log that this version covers.")


class TableInfo(AnswerModel):
    """A table in full."""

    model_config = with_examples(
        {
            "database": "shop",
            "name": "orders",
            "table_id": _TABLE_ID,
            "format": "delta",
            "location": _LOCATION,
            "columns": [
                {"name": "id", "type": "BIGINT", "nullable": False},
                {"name": "amount", "type": "DECIMAL(10,2)", "nullable": True, "comment": "in euros"},
            ],
            "primary_key": ["id"],
            "partition_by": [],
            "options": {"bucket": "4"},
            "effective_options": {"bucket": "4", "log.system": "embedded"},
            "comment": "One row an order",
            "created_at": _CREATED,
            "current_snapshot": {
                "version": 7,
                "timestamp": "2026-11-21T13:00:00Z",
                "files": 4,
                "bytes": 1048576,
                "rows": 25000,
                "log_offsets": {"0": 6120, "1": 6311, "2": 6248, "3": 6321},
            },
        }
    )

    database: str
    name: str
    table_id: str = Field(description="A UUID; a table that is dropped and created again gets another.")
    connector: str | None = Field(
        None, description="`kafka` or `upsert-kafka` if the table is a topic; null for a managed table."
    )
    format: Literal["delta"] | None = Field("delta", description="The files' format; null with a connector.")
    location: str | None = Field(
        description="The path or URL of the Delta table; null for a table with a connector, which has no files."
    )
    storage_options: dict[str, str] = Field(
        default_factory=dict,
        description="How to reach a location in S3: endpoint, region, path-style. Secrets are never among them.",
    )
    commits: str = Field(
        "store",
        description="What keeps concurrent commits apart: `store`, or `catalog`: then writers claim each version here.",
    )
    columns: list[ColumnInfo]
    primary_key: list[str]
    partition_by: list[str]
    options: dict[str, str] = Field(description="The options as given.")
    effective_options: dict[str, str] = Field(description="The options as given, and the defaults of the others.")
    keeps_topic: bool = Field(False, description="Whether its log is a topic that existed before it, and will stay.")
    comment: str | None = None
    created_at: datetime
    current_snapshot: CurrentSnapshot | None = Field(
        None, description="Null if the request did not ask for it, and for a table with a connector."
    )

    def declaration(self) -> KafkaDeclaration | None:
        """The declaration of a table with a connector; None for a managed table."""
        if self.connector is None:
            return None
        options = tuple(sorted(self.options.items()))
        return KafkaDeclaration(table_columns(self.columns), tuple(self.primary_key), options, self.comment)

    def identity(self) -> TableIdentity:
        """Returns the identity of a managed table. REQUIRES: the table has no connector."""
        assert self.location is not None, "a table with a connector has no files"
        return TableIdentity(self.database, self.name, self.table_id, self.location)


# ---------------------------------------------------------------------------------------------- snapshots


class SnapshotInfo(AnswerModel):
    """One version of a table."""

    model_config = with_examples(
        {
            "version": 7,
            "timestamp": "2026-11-21T13:00:00Z",
            "operation": "WRITE",
            "commit_id": "0b0f6b52-6f0c-4d3e-9f0e-2f0a1c1d7a55",
            "log_offsets": {"0": 6120, "1": 6311},
            "metrics": {"rows_written": 250000, "files_added": 4},
        }
    )

    version: int
    timestamp: datetime
    operation: str
    commit_id: str
    log_offsets: dict[int, int]
    metrics: dict[str, int]
    notes: list[str] = Field([], description="Notes, such as which readers cannot read the table after a change.")


class SnapshotPage(AnswerModel):
    """Snapshots, newest first."""

    snapshots: list[SnapshotInfo]
    next_page_token: str | None = Field(None, description="The token of the next, older page; null on the last.")

"""The declared columns of a table: physical ones, and metadata columns (FLIP-107; METADATA.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.names import quoted
from filestore.model.schema import Column, Schema
from filestore.model.text import check_text, name_list
from filestore.model.types import to_sql

__all__ = ["FIELD_KEY", "FIELD_VIRTUAL", "MetadataColumn", "TableColumns", "managed_schema"]

FIELD_KEY = b"tablestore.metadata-key"
FIELD_VIRTUAL = b"tablestore.virtual"


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column that is read from a message's metadata, and unless `virtual` written to it.

    Attributes:
        name: The column's name.
        type: Its canonical Arrow type, as declared: values are cast from and to the metadata's own type.
        key: Which metadata it holds, such as ``timestamp`` or ``value.source.table``.
        virtual: Whether it can only be read, and is not a part of written rows.
        nullable: Whether it may be null.
        comment: Free text.
    """

    name: str
    type: pa.DataType
    key: str
    virtual: bool = False
    nullable: bool = True
    comment: str | None = None

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` (``metadata-key``, ``bad-text``) if the key cannot be valid."""
        check_text(f"the metadata key of column {self.name!r}", self.key)
        if not self.key or self.key != self.key.strip():
            raise InvalidRequest(
                f"column {self.name!r} has the metadata key {self.key!r}, which is empty or has spaces at its ends: "
                "name one as in 'timestamp'",
                code="metadata-key",
            )

    def to_field(self) -> pa.Field:
        """Converts it to a field of an Arrow schema that is marked as a metadata column."""
        metadata = {} if self.comment is None else {b"comment": self.comment.encode()}
        metadata |= {FIELD_KEY: self.key.encode(), FIELD_VIRTUAL: str(self.virtual).lower().encode()}
        return pa.field(self.name, self.type, self.nullable, metadata)


def managed_schema(columns: Iterable[Column | MetadataColumn]) -> Schema:
    """Makes the schema of a managed table, whose columns must all be physical.

    Raises:
        InvalidRequest: ``metadata-column``: one is a metadata column; or as `Schema`.
    """
    physical = []
    for column in columns:
        if isinstance(column, MetadataColumn):
            raise InvalidRequest(
                f"column {column.name!r} is declared METADATA, which a managed table cannot have: its rows are in "
                "files, not in messages with a topic, an offset or a timestamp. Only tables with connector = kafka or "
                "upsert-kafka have metadata columns: leave it out here, or declare it without METADATA and write its "
                "values yourself",
                code="metadata-column",
            )
        physical.append(column)
    return Schema(tuple(physical))


@dataclass(frozen=True, slots=True)
class TableColumns:
    """All columns of a table in declared order. Names differ also when case is ignored, as in a `Schema`."""

    columns: tuple[Column | MetadataColumn, ...]

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` as `Schema`, or ``metadata-key`` if two columns write the same metadata."""
        Schema(tuple(Column(c.name, c.type) for c in self.columns))  # checks the names
        if len(self.metadata) == len(self.columns):
            raise InvalidRequest(
                "every column is a METADATA column: declare at least one that a message's key or value holds",
                code="empty-schema",
            )
        writes: dict[str, str] = {}
        for column in self.metadata:
            if column.virtual:
                continue
            if column.key in writes:
                raise InvalidRequest(
                    f"columns {writes[column.key]!r} and {column.name!r} would both write the metadata {column.key!r}: "
                    "declare one of them VIRTUAL",
                    code="metadata-key",
                )
            writes[column.key] = column.name

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in declared order."""
        return tuple(c.name for c in self.columns)

    @property
    def physical(self) -> Schema:
        """The columns that keys and values of messages hold, in declared order."""
        return Schema(tuple(c for c in self.columns if isinstance(c, Column)))

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        """The metadata columns, in declared order."""
        return tuple(c for c in self.columns if isinstance(c, MetadataColumn))

    def check_physical(self, role: str, names: Collection[str]) -> None:
        """Refuses metadata columns where only physical ones can be.

        Args:
            role: The role of the names, for the message, such as ``primary key``.
            names: Names of columns. Unknown names are not checked here.

        Raises:
            InvalidRequest: ``metadata-column``.
        """
        for column in self.metadata:
            if column.name in names:
                raise InvalidRequest(
                    f"{role} column {column.name!r} is a METADATA column, which belongs to a message and not to the "
                    f"row in it: the {role} consists of physical columns, which are {name_list(self.physical.names)}",
                    code="metadata-column",
                )

    def required(self, names: Collection[str]) -> TableColumns:
        """Returns them with those physical columns NOT NULL, as a primary key implies; ignores other names."""
        return TableColumns(
            tuple(replace(c, nullable=False) if isinstance(c, Column) and c.name in names else c for c in self.columns)
        )

    def to_arrow(self) -> pa.Schema:
        """Converts them to an Arrow schema whose metadata columns are marked."""
        return pa.schema([c.to_field() if isinstance(c, MetadataColumn) else _to_field(c) for c in self.columns])

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> TableColumns:
        """Converts an Arrow schema; `metadata_column` makes the fields of metadata columns.

        Raises:
            InvalidRequest: as `Schema.from_arrow`, or ``metadata-key``: a field's own metadata is not valid.
        """
        return cls(tuple(_from_field(f) for f in schema))

    def to_sql(self) -> str:
        """Formats them as a SQL list: ``id BIGINT NOT NULL, at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL``."""
        return ", ".join(_to_sql(c) if isinstance(c, MetadataColumn) else Schema((c,)).to_sql() for c in self.columns)


def _to_field(column: Column) -> pa.Field:
    metadata = None if column.comment is None else {b"comment": column.comment.encode()}
    return pa.field(column.name, column.type, column.nullable, metadata)


def _from_field(field: pa.Field) -> Column | MetadataColumn:
    (column,) = Schema.from_arrow(pa.schema([field])).columns
    metadata: dict[bytes, bytes] = field.metadata or {}
    if FIELD_KEY not in metadata and FIELD_VIRTUAL not in metadata:
        return column
    virtual = metadata.get(FIELD_VIRTUAL, b"false")
    if FIELD_KEY not in metadata or virtual not in (b"true", b"false"):
        raise InvalidRequest(
            f"the field {field.name!r} has {metadata}, which makes it neither a physical nor a metadata column: make "
            "it with tablestore.metadata_column(name, type, key, virtual=…)",
            code="metadata-key",
        )
    try:
        key = metadata[FIELD_KEY].decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the metadata key of column {field.name!r} is not UTF-8 ({error.reason}): write it as text",
            code="bad-text",
        ) from error
    return MetadataColumn(column.name, column.type, key, virtual == b"true", column.nullable, column.comment)


def _to_sql(column: MetadataColumn) -> str:
    parts = [quoted(column.name), to_sql(column.type), "" if column.nullable else "NOT NULL"]
    parts += ["METADATA FROM", _literal(column.key), "VIRTUAL" if column.virtual else ""]
    if column.comment is not None:
        parts += ["COMMENT", _literal(column.comment)]
    return " ".join(part for part in parts if part)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""A table's columns, and how Arrow, Delta's log and SQL spell them.

The canonical type of a column is an Arrow type of a closed set; the table in FORMAT.md section 3 has all spellings
(Delta protocol, section "Schema Serialization Format").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model import types
from filestore.model.names import check_new_name, check_stored_name, quoted
from filestore.model.text import check_text, none_named

__all__ = ["Column", "Schema", "check_fields"]

ID_METADATA = "tablestore.id"
CHANGES_METADATA = "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: The column's name.
        type: Its canonical Arrow type.
        nullable: Whether it may be null.
        comment: Free text.
        id: Identifies the column when its name changes, and is never used again (FORMAT.md section 3.1). None in a
            schema that was never changed; `Schema.numbered` derives it there.
        stored_name: With column mapping its name in data files, statistics and partition values; else None.
        former_types: Its former, narrower types, oldest first, which older files may have.
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    comment: str | None = None
    id: int | None = None
    stored_name: str | None = None
    former_types: tuple[pa.DataType, ...] = ()

    @property
    def in_files(self) -> str:
        """The column's name in data files and in their statistics."""
        return self.stored_name or self.name

    def to_delta(self) -> dict[str, Any]:
        """Encodes the column as a field of Delta's ``schemaString``."""
        metadata: dict[str, Any] = {} if self.comment is None else {"comment": self.comment}
        ids: Iterator[int] | None = None
        if self.id is not None:
            metadata[ID_METADATA] = self.id
            if self.stored_name is not None:
                metadata |= types.mapping_metadata(self.id, self.stored_name)
                ids = itertools.count(self.id + 1)
        if self.former_types:
            path = (*self.former_types, self.type)
            metadata[CHANGES_METADATA] = [
                {"fromType": types.to_delta(before), "toType": types.to_delta(after)}
                for before, after in itertools.pairwise(path)
            ]
        return {
            "name": self.name,
            "type": types.to_delta(self.type, ids),
            "nullable": self.nullable,
            "metadata": metadata,
        }

    @classmethod
    def from_delta(cls, value: dict[str, Any]) -> Column:
        """Reverses `to_delta`."""
        metadata = value.get("metadata", {})
        return cls(
            value["name"],
            types.from_delta(value["type"]),
            value["nullable"],
            metadata.get("comment"),
            metadata.get(ID_METADATA),
            metadata.get("delta.columnMapping.physicalName"),
            tuple(types.from_delta(change["fromType"]) for change in metadata.get(CHANGES_METADATA, ())),
        )


@dataclass(frozen=True, slots=True)
class Schema:
    """The ordered columns of a table. Their names are distinct also without regard to case, as Spark requires."""

    columns: tuple[Column, ...]
    _by_name: dict[str, Column] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` if there are no columns, or names are empty, reserved or repeated."""
        if not self.columns:
            raise InvalidRequest("the schema has no columns: name at least one", code="empty-schema")
        seen: set[str] = set()
        for column in self.columns:
            check_stored_name(column.name)
            if column.name.lower() in seen:
                raise InvalidRequest(
                    f"column {column.name!r} appears twice (names are compared without case): rename one",
                    code="duplicate-column",
                )
            seen.add(column.name.lower())
        object.__setattr__(self, "_by_name", {c.name: c for c in self.columns})

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(c.name for c in self.columns)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def spelled(self, name: str) -> str | None:
        """Returns the name of a column as the schema has it, for one in upper or lower case; None if it has none."""
        return next((known for known in self.names if known.lower() == name.lower()), None)

    def column(self, name: str) -> Column:
        """Returns the column of that exact name; `NotFound` lists the existing ones."""
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFound(none_named("column", name, self.names), code="unknown-column") from None

    def select(self, names: Iterable[str]) -> Schema:
        """Returns the schema of those columns, in the given order."""
        return Schema(tuple(self.column(n) for n in names))

    def required(self, names: Iterable[str]) -> Schema:
        """Returns the schema with those columns NOT NULL, as a primary key implies; ignores unknown names."""
        keys = set(names)
        return Schema(tuple(replace(c, nullable=False) if c.name in keys else c for c in self.columns))

    def numbered(self) -> Schema:
        """Returns the schema with explicit ids of its columns.

        In a schema that was never changed they count from 1. The STRUCT fields in a column have the ids that follow
        the column's, depth first.
        """
        if all(column.id is not None for column in self.columns):
            return self
        numbered, free = [], 1
        for column in self.columns:
            numbered.append(replace(column, id=free))
            free += 1 + types.field_count(column.type)
        return Schema(tuple(numbered))

    @property
    def last_id(self) -> int:
        """The greatest id of a column or a STRUCT field."""
        return max((c.id or 0) + types.field_count(c.type) for c in self.numbered())

    @property
    def mapped(self) -> bool:
        """Returns whether columns have other names in files (Delta's column mapping)."""
        return self.columns[0].stored_name is not None

    def to_arrow(self) -> pa.Schema:
        """Converts it to an Arrow schema (timestamps in microseconds, UTC or without zone)."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    def arrow_of(self, names: Sequence[str] | None) -> pa.Schema:
        """Returns the Arrow schema of those columns, in the given order; None: all. A reader may ask for no column."""
        if names is None:
            return self.to_arrow()
        return self.select(names).to_arrow() if names else pa.schema([])

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """Converts an Arrow schema; wider types (large_string, timestamp[ns], dictionary) become canonical ones.

        Raises:
            InvalidRequest: no Delta type holds a column's type; the message has the name and what to do.
        """
        return cls(tuple(_column_from_arrow(f) for f in schema))

    def to_delta(self) -> dict[str, Any]:
        """Encodes it as Delta's ``schemaString``, before JSON."""
        return {"type": "struct", "fields": [c.to_delta() for c in self.columns]}

    def plain(self) -> Schema:
        """Returns only names, types, NOT NULL and comments, as a data frame of the table's rows needs them."""
        return Schema(tuple(Column(c.name, c.type, c.nullable, c.comment) for c in self.columns))

    @classmethod
    def from_delta(cls, value: dict[str, Any]) -> Schema:
        """Reads Delta's ``schemaString``, after JSON decoding."""
        return cls(tuple(Column.from_delta(f) for f in value["fields"]))

    def to_sql(self) -> str:
        """Formats it as a Spark SQL column list: ``id BIGINT NOT NULL, name STRING``."""
        return ", ".join(_column_to_sql(c) for c in self.columns)


class _Named(Protocol):
    """A physical column or a metadata column."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> pa.DataType: ...
    @property
    def comment(self) -> str | None: ...


def check_fields(columns: Iterable[_Named]) -> None:
    """Checks the names of columns and of STRUCT fields at any depth, and comments.

    Only new tables and columns are checked, so that stored ones stay readable.

    Raises:
        InvalidRequest: ``bad-text``, ``bad-column-name`` or ``duplicate-column``.
    """
    for column in columns:
        check_new_name(f"column name {column.name!r}", column.name)
        check_text(f"the comment of column {column.name!r}", column.comment or "")
        _check_type(column.type, column.name)


def _check_type(arrow: pa.DataType, path: str) -> None:
    """Checks names inside a type; the element fields of lists and maps have no names that users chose."""
    if pa.types.is_list(arrow):
        _check_type(arrow.value_type, path)
    elif pa.types.is_map(arrow):
        _check_type(arrow.key_type, path)
        _check_type(arrow.item_type, path)
    elif pa.types.is_struct(arrow):
        _check_struct(arrow, path)


def _check_struct(arrow: pa.StructType, path: str) -> None:
    seen: set[str] = set()
    for child in arrow:
        check_new_name(f"field name {child.name!r} in column {path!r}", child.name)
        if child.name.lower() in seen:
            raise InvalidRequest(
                f"column {path!r} has the STRUCT field {child.name!r} twice (names are compared without case): "
                "rename one",
                code="duplicate-column",
            )
        seen.add(child.name.lower())
        _check_type(child.type, f"{path}.{child.name}")


def _column_from_arrow(arrow: pa.Field) -> Column:
    comment = _comment(arrow)
    try:
        canonical = types.canonical(arrow.type)
    except Unsupported as error:
        raise InvalidRequest(f"column {arrow.name!r}: {error.message}", code="unsupported-type") from error
    return Column(arrow.name, canonical, arrow.nullable, comment)


def _comment(arrow: pa.Field) -> str | None:
    comment: bytes = (arrow.metadata or {}).get(b"comment", b"")
    try:
        return comment.decode() or None
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the comment of column {arrow.name!r} is not UTF-8 ({error.reason}): write it as text", code="bad-text"
        ) from error


def _column_to_sql(column: Column) -> str:
    parts = [quoted(column.name), types.to_sql(column.type)]
    if not column.nullable:
        parts.append("NOT NULL")
    if column.comment is not None:
        escaped = column.comment.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(f"COMMENT '{escaped}'")
    return " ".join(parts)

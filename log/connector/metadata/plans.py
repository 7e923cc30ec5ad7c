"""Plans between declared rows of a Kafka table and rows of messages, for readers and writers. Pure.

A reader produces, and a writer takes, **rows of messages**: the physical columns, then metadata under the name
`metadata_field` of its key: key format, value format, connector. Users see **declared rows**: all columns as the table
declares them. A `ReadPlan` and a `WritePlan` lead from one to the other; both are decided before the first row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest, NotFound
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Column
from filestore.model.table_columns import MetadataColumn, TableColumns
from filestore.model.text import name_list, none_named
from filestore.model.types import to_sql
from log.connector.metadata.binding import Bound, bind, listed, read_values, unreadable, writable, written_values
from log.connector.metadata.keys import MetadataKey, Origin

__all__ = ["ReadPlan", "WritePlan", "metadata_field", "plan_read", "plan_write"]


def metadata_field(key: str) -> str:
    """Returns the column of a key's values in rows of messages. No metadata column of a user has that name."""
    return f"_metadata.{key}"


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Converts rows of messages to declared rows. Picklable.

    Attributes:
        produced: What a reader produces.
        declared: What users get.
        keys: The metadata that is needed, in the order of `produced`.
        columns: The columns of `declared`, with the keys of those that are metadata.
    """

    produced: pa.Schema
    declared: pa.Schema
    keys: tuple[MetadataKey, ...]
    columns: tuple[Column | Bound, ...]

    def names(self, origin: Origin) -> tuple[str, ...]:
        """Returns the keys of one origin, by their own names: what a format's decoder or the consumer has to return."""
        return tuple(key.own_name for key in self.keys if key.origin is origin)

    def read(self, rows: pa.Table) -> pa.Table:
        """Converts rows of messages to declared rows, with `KIND_COLUMN` last if they have it.

        Args:
            rows: With the columns of `produced`, in any order and metadata in any unit; others are passed over.

        Raises:
            InvalidRequest: ``bad-value``: a value does not fit the type that its column was declared with.
        """
        columns = [
            rows.column(column.name)
            if isinstance(column, Column)
            else read_values(rows.column(metadata_field(column.key.name)), column)
            for column in self.columns
        ]
        return _table(columns, self.declared, rows)

    def unreadable(self, rows: pa.Table) -> dict[int, str]:
        """Returns the rows that `read` would refuse, with the reason: a reader may skip them, or move them elsewhere.

        Args:
            rows: As `read` takes them.
        """
        wrong: dict[int, str] = {}
        for column in self.columns:
            if isinstance(column, Bound):
                found = unreadable(rows.column(metadata_field(column.key.name)), column)
                wrong = dict(found) | wrong
        return dict(sorted(wrong.items()))


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Converts declared rows to rows of messages. Picklable.

    Attributes:
        declared: What users may give: all columns that are not VIRTUAL, in declared order.
        produced: What a writer takes.
        keys: The metadata that is written, in the order of `produced`.
        virtual: The columns that can be read only.
        metadata: The columns of `keys`.
    """

    declared: pa.Schema
    produced: pa.Schema
    keys: tuple[MetadataKey, ...]
    virtual: tuple[str, ...]
    metadata: tuple[Bound, ...]

    def write(self, rows: pa.Table) -> pa.Table:
        """Converts declared rows to rows of messages, with `KIND_COLUMN` last if they have it.

        Args:
            rows: With columns of `declared`, in any order; a nullable one that is left out is null.

        Raises:
            InvalidRequest: ``virtual-column``: a column that can be read only; ``unknown-column``;
                ``missing-column``: a NOT NULL column is left out; ``bad-type``: a column has another type than
                `declared`; ``null-value``: null in a metadata column that is NOT NULL; ``bad-value``: a value does not
                fit its key.
        """
        self._check_names(rows)
        metadata = {bound.column.name for bound in self.metadata}
        columns = [_written(rows, field) for field in self.declared if field.name not in metadata]
        for bound in self.metadata:
            given = _written(rows, self.declared.field(bound.column.name))
            _check_nulls(rows, given, bound.column)
            columns.append(written_values(given, bound))
        return _table(columns, self.produced, rows)

    def _check_names(self, rows: pa.Table) -> None:
        declared = {*self.declared.names, KIND_COLUMN}
        for name in rows.column_names:
            if name in self.virtual:
                raise InvalidRequest(
                    f"column {name!r} is VIRTUAL: it is read from messages and cannot be written. Leave it out",
                    code="virtual-column",
                )
            if name not in declared:
                raise InvalidRequest(
                    f"the rows have a column {name!r} that the table lacks; the columns to write are "
                    f"{name_list(self.declared.names)}",
                    code="unknown-column",
                )
        twice, count = Counter(rows.column_names).most_common(1)[0] if rows.num_columns else ("", 0)
        if count > 1:
            raise InvalidRequest(f"the rows have two columns {twice!r}: rename one", code="duplicate-column")


def plan_read(columns: TableColumns, keys: Sequence[MetadataKey], names: Collection[str] | None = None) -> ReadPlan:
    """Makes the plan of a reader. That is also the check that a new table's metadata columns can be read.

    Args:
        columns: The table's.
        keys: `log.connector.metadata.keys.available_keys` of its connector and formats.
        names: Of the columns that are wanted; all if absent. Declared order stays.

    Raises:
        InvalidRequest: as `bind`.
        NotFound: ``unknown-column`` among `names`.
    """
    known = set(columns.names)
    for name in names or ():
        if name not in known:
            raise NotFound(none_named("column", name, columns.names), code="unknown-column")
    chosen = known if names is None else set(names)
    wanted = [_bound(c, keys) for c in columns.columns if c.name in chosen]
    needed = {c.key.name for c in wanted if isinstance(c, Bound)}
    used = tuple(key for key in keys if key.name in needed)
    physical = [pa.field(c.name, c.type, c.nullable) for c in wanted if isinstance(c, Column)]
    declared = [pa.field(c.name, c.type, c.nullable) for c in map(_declared, wanted)]
    return ReadPlan(pa.schema([*physical, *map(_field, used)]), pa.schema(declared), used, tuple(wanted))


def plan_write(columns: TableColumns, keys: Sequence[MetadataKey]) -> WritePlan:
    """Makes the plan of a writer.

    Args:
        columns: The table's.
        keys: `log.connector.metadata.keys.available_keys` of its connector and formats.

    Raises:
        InvalidRequest: ``read-only-metadata``: a column that is not VIRTUAL has a key that cannot be written; or as
            `plan_read`.
    """
    bound = [_bound(c, keys) for c in columns.columns]
    metadata = {c.key.name: c for c in bound if isinstance(c, Bound) and not c.column.virtual}
    for c in metadata.values():
        if not c.key.writable:
            raise InvalidRequest(
                f"column {c.column.name!r} cannot be written: the metadata {c.key.name!r} is read only, and the column "
                f"is not VIRTUAL. Declare it so, as in `{c.column.name} {to_sql(c.column.type)} METADATA FROM "
                f"'{c.key.name}' VIRTUAL`, and leave it out of what is written. {listed('writable', writable(keys))}",
                code="read-only-metadata",
            )
    used = tuple(key for key in keys if key.name in metadata)
    virtual = tuple(m.name for m in columns.metadata if m.virtual)
    declared = [pa.field(c.name, c.type, c.nullable) for c in columns.columns if c.name not in virtual]
    physical = [pa.field(c.name, c.type, c.nullable) for c in columns.physical]
    produced = pa.schema([*physical, *(_field(key).with_nullable(True) for key in used)])
    return WritePlan(pa.schema(declared), produced, used, virtual, tuple(metadata[key.name] for key in used))


def _bound(column: Column | MetadataColumn, keys: Sequence[MetadataKey]) -> Column | Bound:
    return bind(column, keys) if isinstance(column, MetadataColumn) else column


def _declared(column: Column | Bound) -> Column | MetadataColumn:
    return column.column if isinstance(column, Bound) else column


def _field(key: MetadataKey) -> pa.Field:
    return pa.field(metadata_field(key.name), key.type, key.nullable)


def _table(columns: Sequence[pa.ChunkedArray], schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The columns as a table. Its fields are nullable, since deletes may have their key only."""
    if not schema.names:
        return rows.select([KIND_COLUMN] if KIND_COLUMN in rows.column_names else [])  # which still has as many rows
    fields = [field.with_nullable(True) for field in schema]
    if KIND_COLUMN in rows.column_names:
        fields.append(pa.field(KIND_COLUMN, pa.string()))
        columns = [*columns, rows.column(KIND_COLUMN)]
    return pa.table(columns, schema=pa.schema(fields))


def _written(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if rows.schema.get_field_index(field.name) < 0:
        if not field.nullable:
            raise InvalidRequest(
                f"the rows lack the column {field.name!r}, which is NOT NULL: add it", code="missing-column"
            )
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    given = rows.column(field.name)
    if given.type != field.type:
        raise InvalidRequest(
            f"column {field.name!r} is {field.type} and the rows have {given.type}: cast them", code="bad-type"
        )
    return given


def _check_nulls(rows: pa.Table, given: pa.ChunkedArray, column: MetadataColumn) -> None:
    if column.nullable or not given.null_count:
        return
    if KIND_COLUMN in rows.column_names:
        adding = pa.array([str(kind) for kind in RowKind if kind.adds])
        given = given.filter(pc.is_in(rows.column(KIND_COLUMN), value_set=adding))
    if given.null_count:
        raise InvalidRequest(
            f"column {column.name!r} is NOT NULL and holds {given.null_count} nulls: filter or fill them",
            code="null-value",
        )

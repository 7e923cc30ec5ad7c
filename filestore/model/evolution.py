"""Applies changes to a definition, and decides what they require of the files (FORMAT.md section 3.1). Pure.

Adding and moving columns, NOT NULL to nullable, comments and options change only metadata. Dropping, renaming and
widening do so, too, with ``schema.evolution-mode = metadata``, which enables features of Delta that some readers lack;
with ``rewrite`` the files are rewritten, and every reader can still read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.errors import InvalidRequest, Unsupported
from filestore.model.bounds import Extent, check_extent
from filestore.model.changes import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetNullable,
    SetOption,
    UnsetOption,
    WidenColumn,
)
from filestore.model.definition import (
    COLUMN_MAPPING,
    TYPE_WIDENING,
    TableDefinition,
    check_definition,
    check_view_options,
)
from filestore.model.names import listed
from filestore.model.options import OPTIONS
from filestore.model.schema import Column, Schema, check_fields
from filestore.model.sql import parse_type
from filestore.model.stray_options import check_stray_options
from filestore.model.table_options import TableOptions
from filestore.model.text import check_text
from filestore.model.types import canonical, field_count, is_wider, to_sql
from filestore.secrets import allows_literals, check_references

__all__ = ["MERGING_OPTIONS", "Evolution", "evolve"]

MERGING_OPTIONS = (
    "ignore-delete",
    "partial-update.remove-record-on-delete",
    "aggregation.remove-record-on-delete",
)
"""Options that change how rows are merged and may change: pending runs were written for the former value."""

_READERS = {
    COLUMN_MAPPING: "Delta's column mapping is enabled: delta-spark and deltalake's QueryBuilder can read the table, "
    "polars refuses it from now on",
    TYPE_WIDENING: "Delta's type widening is enabled: delta-spark can read the table, deltalake and polars refuse it "
    "from now on",
}


@dataclass(frozen=True, slots=True)
class Evolution:
    """The result of changing a definition.

    Attributes:
        definition: The new definition.
        rewrites: Whether the table's rows have to be rewritten, into files of the new schema.
        needs_folds: Whether pending runs have to be folded first: a later fold would not find their columns, or would
            not merge their rows as they were meant. A wider type needs no fold: narrower values are cast on reading.
        needs_no_rows: Whether it is only valid for a table without rows: a NOT NULL column is added.
        readers: A sentence for each feature that is enabled, which says which readers cannot read the table any more.
    """

    definition: TableDefinition
    rewrites: bool = False
    needs_folds: bool = False
    needs_no_rows: bool = False
    readers: tuple[str, ...] = ()


def evolve(definition: TableDefinition, changes: Sequence[Change], new_name: Callable[[], str]) -> Evolution:
    """Applies changes in the given order.

    Args:
        definition: The present definition.
        changes: The changes; at least one.
        new_name: Returns a name that no file of the table has: with column mapping a new column's name in files.

    Raises:
        NotFound: ``unknown-column``.
        InvalidRequest: ``no-changes``, ``column-in-use``, ``fixed-option``, ``option-not-set``, ``not-wider``,
            ``nested-change``, ``nullable-key``, ``bad-position``, or a code of `TableDefinition.of`: the parts of the
            result would not fit each other.
    """
    if not changes:
        raise InvalidRequest("there is nothing to change: name at least one change", code="no-changes")
    if definition.is_view and (column := next((c for c in changes if not isinstance(c, _OF_VIEWS)), None)) is not None:
        raise InvalidRequest(
            f"the columns of a maintained view follow from its query, so {type(column).__name__} cannot be applied: "
            "create the view again with another query",
            code="maintained-view",
        )
    before = _numbered(definition)
    after = before
    for change in changes:
        after = _applied(after, change, before)
    check_extent(_extent(after), _extent(definition))
    check_definition(after)
    check_stray_options(after, before)
    check_view_options(after, before.options.as_dict())
    metadata = after.options["schema.evolution-mode"] == "metadata"
    mapping = COLUMN_MAPPING in before.features or (metadata and _renames(before.schema, after.schema))
    widening = TYPE_WIDENING in before.features or (metadata and _widens(before.schema, after.schema))
    renames = _renames(before.schema, after.schema) and not mapping
    rewrites = renames or (_widens(before.schema, after.schema) and not widening)
    features = {*([COLUMN_MAPPING] if mapping else []), *([TYPE_WIDENING] if widening else [])}
    former = {column.id: column for column in before.schema}
    columns = tuple(_stored(c, former.get(c.id), mapping, widening, new_name) for c in after.schema)
    result = replace(after, schema=Schema(columns), features=frozenset(features))
    return Evolution(
        definition if result == before else result,
        rewrites,
        renames or any(before.options[name] != after.options[name] for name in MERGING_OPTIONS),
        any(not column.nullable for column in _added(before.schema, after.schema)),
        tuple(_READERS[feature] for feature in sorted(result.features - before.features)),
    )


_OF_VIEWS = (SetComment, SetOption, UnsetOption)
"""The changes of a maintained view: all but those of its columns."""


def _extent(definition: TableDefinition) -> Extent:
    return Extent.of(definition.schema, definition.options.as_dict(), definition.comment)


def _numbered(definition: TableDefinition) -> TableDefinition:
    """Makes explicit what an unchanged schema implies: the columns' ids, and the bucket key."""
    schema = definition.schema.numbered()
    last = definition.last_id if definition.last_id is not None else schema.last_id
    options = definition.options
    if not definition.primary_key and definition.buckets > 1 and options["bucket-key"] is None:
        options = TableOptions.parse(options.as_dict() | {"bucket-key": listed(definition.bucket_key)})
    return replace(definition, schema=schema, last_id=last, options=options)


def _renames(before: Schema, after: Schema) -> bool:
    """Returns whether a column is dropped or has another name."""
    names = {column.id: column.name for column in after}
    return any(names.get(column.id) != column.name for column in before)


def _widens(before: Schema, after: Schema) -> bool:
    types = {column.id: column.type for column in after}
    return any(types.get(column.id, column.type) != column.type for column in before)


def _added(before: Schema, after: Schema) -> list[Column]:
    known = {column.id for column in before}
    return [column for column in after if column.id not in known]


def _stored(
    column: Column, former: Column | None, mapping: bool, widening: bool, new_name: Callable[[], str]
) -> Column:
    """Returns the column with its name in files and its former types, which its former state determines."""
    if mapping:
        column = replace(column, stored_name=former.in_files if former is not None else f"col-{new_name()}")
    if widening and former is not None and former.type != column.type:
        column = replace(column, former_types=(*former.former_types, former.type))
    return column


# ------------------------------------------------------------------------------------------------ change by change


def _applied(definition: TableDefinition, change: Change, start: TableDefinition) -> TableDefinition:
    match change:
        case SetOption() | UnsetOption():
            return _with_option(definition, change, start)
        case SetComment():
            return _commented(definition, change)
        case SetNullable():
            return _loosen(definition, change.name)
        case WidenColumn():
            return _widen(definition, change)
        case AddColumn():
            return _add(definition, change)
        case MoveColumn():
            column = definition.schema.column(change.name)
            others = [c for c in definition.schema if c.name != change.name]
            return _with_columns(definition, _inserted(others, column, change.after, first=change.after is None))
        case DropColumn():
            _require_free(definition, change.name, "dropped")
            return _with_columns(definition, [c for c in definition.schema if c.name != change.name])
        case RenameColumn():
            _require_free(definition, change.name, "renamed")
            column = definition.schema.column(change.name)
            return _with_column(definition, replace(column, name=change.new_name), change.name)


def _with_option(
    definition: TableDefinition, change: SetOption | UnsetOption, start: TableDefinition
) -> TableDefinition:
    _require_changeable(change.name, start)
    given = definition.options.as_dict()
    if isinstance(change, SetOption):
        check_text(f"option {change.name!r}", change.value)
        given[change.name] = change.value
        if not allows_literals(given):
            check_references({change.name: change.value})  # the others may be older than references
    elif given.pop(change.name, None) is None:
        names = ", ".join(given) or "none"
        raise InvalidRequest(f"option {change.name!r} is not set; the set ones: {names}", code="option-not-set")
    options = TableOptions.parse(given)
    _require_final(change.name, start.options, options)
    return replace(definition, options=options)


def _require_final(name: str, before: TableOptions, after: TableOptions) -> None:
    """Refuses to take back a value that stays once an option has it."""
    final = OPTIONS[name].final if name in OPTIONS else None
    if final is not None and before[name] == final[0] != after[name]:
        raise InvalidRequest(
            f"option {name!r} stays {final[0]!r} once it is, since {final[1]}: leave it so, or create the table or "
            "view again",
            code="fixed-option",
        )


def _commented(definition: TableDefinition, change: SetComment) -> TableDefinition:
    if change.name is not None:
        column = replace(definition.schema.column(change.name), comment=change.comment)
        return _with_column(definition, column, change.name)
    check_text("the table's comment", change.comment or "")
    return replace(definition, comment=change.comment or None)


def _with_columns(definition: TableDefinition, columns: Sequence[Column]) -> TableDefinition:
    return replace(definition, schema=Schema(tuple(columns)))


def _with_column(definition: TableDefinition, column: Column, name: str) -> TableDefinition:
    check_fields((column,))
    return _with_columns(definition, [column if c.name == name else c for c in definition.schema])


def _add(definition: TableDefinition, change: AddColumn) -> TableDefinition:
    if change.first and change.after is not None:
        raise InvalidRequest(
            f"column {change.name!r} cannot be both first and behind {change.after!r}: choose one of them",
            code="bad-position",
        )
    column_id = (definition.last_id or 0) + 1
    column = Column(change.name, _type(change.name, change.type), change.nullable, change.comment, column_id)
    check_fields((column,))
    columns = list(definition.schema)
    after = change.after if change.after is not None or change.first else columns[-1].name
    added = _with_columns(definition, _inserted(columns, column, after, first=change.first))
    return replace(added, last_id=column_id + field_count(column.type))


def _inserted(columns: Sequence[Column], column: Column, after: str | None, *, first: bool) -> list[Column]:
    if first:
        return [column, *columns]
    if after == column.name:
        raise InvalidRequest(f"column {after!r} cannot be behind itself: name another", code="bad-position")
    assert after is not None
    names = [c.name for c in columns]
    if after not in names:
        Schema(tuple(columns)).column(after)  # raises NotFound
    at = names.index(after) + 1
    return [*columns[:at], column, *columns[at:]]


def _widen(definition: TableDefinition, change: WidenColumn) -> TableDefinition:
    column = definition.schema.column(change.name)
    wanted = _type(change.name, change.type)
    if wanted == column.type:
        return definition
    if pa.types.is_nested(column.type):
        raise InvalidRequest(
            f"column {change.name!r} is {to_sql(column.type)}, and types inside of it cannot be changed: add a "
            "column of the new type, and drop this one",
            code="nested-change",
        )
    if not is_wider(wanted, column.type):
        raise InvalidRequest(
            f"column {change.name!r} is {to_sql(column.type)}, and {to_sql(wanted)} is not wider: a type may become a "
            "larger integer, DOUBLE for FLOAT, or DECIMAL with no fewer digits on either side of the point",
            code="not-wider",
        )
    placing = {role: names for role, names in _roles(definition).items() if role in _PLACING}
    _require_role_free(placing, change.name, "widened")
    return _with_column(definition, replace(column, type=wanted), change.name)


def _loosen(definition: TableDefinition, name: str) -> TableDefinition:
    if name in definition.primary_key:
        raise InvalidRequest(f"column {name!r} is in the primary key, which is NOT NULL", code="nullable-key")
    return _with_column(definition, replace(definition.schema.column(name), nullable=True), name)


def _type(column: str, given: str | pa.DataType) -> pa.DataType:
    if isinstance(given, str):
        return parse_type(given, column)
    try:
        return canonical(given)
    except Unsupported as error:
        raise InvalidRequest(f"column {column!r}: {error.message}", code="unsupported-type") from error


# -------------------------------------------------------------------------------------------------------- refusals

_PLACING = ("primary key", "partition columns", "bucket key")


def _roles(definition: TableDefinition) -> dict[str, tuple[str, ...]]:
    """The columns on which the table's stored data depends, by their role."""
    options = definition.options
    groups = options.sequence_groups()
    return {
        "primary key": definition.primary_key,
        "partition columns": definition.partition_by,
        "bucket key": tuple(options["bucket-key"] or ()),
        "sequence.field": (definition.sequence_field,) if definition.sequence_field else (),
        "watermark.column": tuple(filter(None, [options["watermark.column"]])),
        "sequence groups": tuple(name for order, members in groups for name in (*order, *members)),
        "options fields.…": tuple(options.field_columns()),
    }


def _require_free(definition: TableDefinition, name: str, done: str) -> None:
    definition.schema.column(name)  # raises NotFound
    _require_role_free(_roles(definition), name, done)


def _require_role_free(roles: Mapping[str, Sequence[str]], name: str, done: str) -> None:
    for role, names in roles.items():
        if name in names:
            raise InvalidRequest(
                f"column {name!r} is in the table's {role} ({', '.join(names)}) and cannot be {done}: create a new "
                "table, and write the rows into it",
                code="column-in-use",
            )


def _require_changeable(name: str, start: TableDefinition) -> None:
    """Refuses to change fixed options. Options of a field may be set with its column, and are fixed then."""
    reason = OPTIONS[name].fixed if name in OPTIONS else None
    if name.startswith("view.setting.") and start.is_view:
        reason = "the stored rows were computed with the former one"
    if reason is None and name.startswith("fields."):
        field = TableOptions(((name, "sum"),))
        if any(column in start.schema for column in field.field_columns()) or field.sequence_groups():
            reason = "the stored values were merged by it"
    if reason is not None:
        raise InvalidRequest(
            f"option {name!r} cannot be changed after the table's creation, since {reason}: create a new table, and "
            "write the rows into it",
            code="fixed-option",
        )

"""Decides how rows of one key are merged, by the table's options (FORMAT.md section 9).

The names are Paimon's: ``merge-engine``, ``fields.<column>.aggregate-function``, ``fields.<columns>.sequence-group``.
`filestore.merge` implements them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.functions import DEFAULT_FUNCTION, FUNCTIONS
from filestore.model.types import to_sql

if TYPE_CHECKING:
    from filestore.model.definition import TableDefinition
    from filestore.model.schema import Column

__all__ = ["Deletes", "FieldMerge", "MergeEngine", "MergeSpec", "merge_spec"]


class MergeEngine(StrEnum):
    """The values of ``merge-engine``."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class Deletes(StrEnum):
    """The effects that a delete (``-D``) or the first half of an update (``-U``) can have."""

    REMOVE = "remove"
    """The row of its key is removed."""
    RETRACT = "retract"
    """Each field retracts the row's value; with ``partial-update`` only the fields of sequence groups do."""
    REFUSE = "refuse"
    """A delete is an error; ``-U``, the first half of an update, changes nothing."""
    IGNORE = "ignore"
    """Nothing is changed."""


@dataclass(frozen=True, slots=True)
class FieldMerge:
    """The rule by which the values of one column are merged.

    Attributes:
        function: One of `FUNCTIONS`.
        order_by: The columns of the sequence group that orders this column's values; the order of rows if empty.
        ignore_retract: Whether retractions leave this column as it is.
        delimiter: The text between the values of a ``listagg``.
        distinct: Whether ``collect`` keeps each element only once.
        nested_key: The fields that identify a struct of a ``nested_update``; without them every struct is added.
        in_turn: Whether the values of several commits have to be merged commit by commit: merged as if they were in
            one commit, they could give another result.
    """

    function: str = DEFAULT_FUNCTION
    order_by: tuple[str, ...] = ()
    ignore_retract: bool = False
    delimiter: str = ","
    distinct: bool = False
    nested_key: tuple[str, ...] = ()
    in_turn: bool = False


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """The rules by which a table's rows are merged.

    Attributes:
        engine: The merge engine.
        deletes: What deletes and first halves of updates do.
        sequence: The column that orders the rows of a key; None if they are ordered by arrival.
        fields: For the engines that merge column by column: each column that is not in the key.
    """

    engine: MergeEngine
    deletes: Deletes
    sequence: str | None
    fields: Mapping[str, FieldMerge]

    @property
    def in_turn(self) -> bool:
        """Returns whether rows of several commits have to be merged commit by commit.

        This also holds for deletes that are ordered by a sequence: after a delete no row counts as late any more.
        """
        removes = self.deletes is Deletes.REMOVE and self.sequence is not None
        return any(field.in_turn for field in self.fields.values()) or (bool(self.fields) and removes)


def merge_spec(definition: TableDefinition) -> MergeSpec:
    """Reads the merge engine from a definition's options.

    Raises:
        InvalidRequest: ``merge-engine``: options that do not fit the engine, the columns or each other.
    """
    options = definition.options
    engine = MergeEngine(options["merge-engine"])
    if engine is not MergeEngine.DEDUPLICATE and not definition.primary_key:
        raise _error(f"merge-engine = {engine} merges rows of one key: declare a primary key")
    fieldwise = engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)
    if not fieldwise and (stray := [name for name in options.as_dict() if name.startswith("fields.")]):
        raise _error(f"option {stray[0]!r} is for merge-engine = aggregation or partial-update, not {engine}")
    if engine is MergeEngine.FIRST_ROW and definition.sequence_field:
        raise _error("merge-engine = first-row keeps the row that arrived first: leave sequence.field out")
    groups = _sequence_groups(definition, engine) if fieldwise else {}
    deletes = _deletes(definition, engine, grouped=bool(groups))
    fields = _fields(definition, engine, groups, deletes) if fieldwise else {}
    return MergeSpec(engine, deletes, definition.sequence_field, fields)


def _deletes(definition: TableDefinition, engine: MergeEngine, *, grouped: bool) -> Deletes:
    options = definition.options
    ignored = bool(options["ignore-delete"])
    removes = [name for name in _REMOVES.values() if options[name]]
    if wrong := [name for name in removes if _REMOVES.get(engine) != name]:
        raise _error(f"option {wrong[0]!r} has no effect with merge-engine = {engine}: leave it out")
    if ignored and removes:
        raise _error(f"ignore-delete and {removes[0]} contradict each other: choose one of them")
    if ignored:
        return Deletes.IGNORE
    if removes or engine is MergeEngine.DEDUPLICATE:
        return Deletes.REMOVE
    return Deletes.RETRACT if engine is MergeEngine.AGGREGATION or grouped else Deletes.REFUSE


_REMOVES: Mapping[MergeEngine, str] = {
    MergeEngine.PARTIAL_UPDATE: "partial-update.remove-record-on-delete",
    MergeEngine.AGGREGATION: "aggregation.remove-record-on-delete",
}


def _fields(
    definition: TableDefinition, engine: MergeEngine, groups: Mapping[str, tuple[str, ...]], deletes: Deletes
) -> Mapping[str, FieldMerge]:
    values = [c for c in definition.schema if c.name not in definition.primary_key]
    fields, given = {}, definition.options.of_fields()
    for column in values:
        own = given.get(column.name, {})
        if column.name == definition.sequence_field and own:
            raise _error(
                f"column {column.name!r} orders the rows and takes the value of the last of them: leave {_named(own)} "
                "out"
            )
        group = groups.get(column.name, ())
        function = own.get("aggregate-function") or _function(column, definition, engine, group)
        field = FieldMerge(
            function,
            group,
            bool(own.get("ignore-retract", False)) or _outside_of_groups(column.name, definition, engine, groups),
            str(own.get("list-agg-delimiter", ",")),
            bool(own.get("distinct", False)),
            tuple(own.get("nested-key", ())),
        )
        _check_field(column.name, column.type, field)
        fields[column.name] = replace(field, in_turn=_in_turn(column, field, definition, deletes))
    _check_names(definition, {c.name for c in values})
    return fields


def _function(column: Column, definition: TableDefinition, engine: MergeEngine, group: tuple[str, ...]) -> str:
    """Returns the function of a column that has none of its own; the columns that order rows follow the last row."""
    default = definition.options["fields.default-aggregate-function"]
    of_engine = "last_value" if group else DEFAULT_FUNCTION
    if default is None or column.name == definition.sequence_field or column.name in group:
        return of_engine
    # a table with partial-update may have it from a version that ignored it: then its columns may not fit
    return default if engine is MergeEngine.AGGREGATION or FUNCTIONS[default].fits(column.type) else of_engine


def _outside_of_groups(
    name: str, definition: TableDefinition, engine: MergeEngine, groups: Mapping[str, tuple[str, ...]]
) -> bool:
    """Returns whether a retraction leaves the column as it is, since it is in no sequence group."""
    return engine is MergeEngine.PARTIAL_UPDATE and name not in groups and name != definition.sequence_field


def _in_turn(column: Column, field: FieldMerge, definition: TableDefinition, deletes: Deletes) -> bool:
    """Decides `FieldMerge.in_turn`."""
    function, sequence = FUNCTIONS[field.function], definition.sequence_field
    if column.name == sequence:
        return False
    if field.order_by and (deletes is Deletes.RETRACT or sequence is not None):
        return True  # a result depends on whether the key has a row, and on which of equal rows is the last
    if column.name in field.order_by:
        return False
    ordered = function.ordered and (sequence is not None or bool(field.order_by))
    # a commit that only retracts leaves a row without a value, and then that row is the first one
    begins = field.function == "first_value" and deletes is Deletes.RETRACT
    return ordered or begins or function.rounds(column.type)


def _sequence_groups(definition: TableDefinition, engine: MergeEngine) -> Mapping[str, tuple[str, ...]]:
    """The sequence columns of each column that is in a group; they themselves are in it, too."""
    found: dict[str, tuple[str, ...]] = {}
    for order, members in definition.options.sequence_groups():
        if engine is not MergeEngine.PARTIAL_UPDATE:
            raise _error(f"a sequence group is for merge-engine = partial-update, not {engine}")
        for name in (*order, *members):
            if name not in definition.schema or name in definition.primary_key:
                raise _error(f"the sequence group of {', '.join(order)} names {name!r}, which is not a value column")
            if name in found:
                raise _error(f"column {name!r} is in two sequence groups")
            if name in order and pa.types.is_nested(definition.schema.column(name).type):
                raise _error(f"column {name!r} is {to_sql(definition.schema.column(name).type)} and has no order")
            found[name] = order
    return found


def _check_field(name: str, kind: pa.DataType, field: FieldMerge) -> None:
    function = FUNCTIONS[field.function]
    if not function.fits(kind):
        raise _error(
            f"aggregate-function {field.function} takes {function.takes}, and column {name!r} is {to_sql(kind)}"
        )
    if field.nested_key:
        inner = {f.name for f in kind.value_type} if FUNCTIONS["nested_update"].fits(kind) else set()
        if field.function != "nested_update" or not set(field.nested_key) <= inner:
            raise _error(
                f"fields.{name}.nested-key = {','.join(field.nested_key)} needs nested_update and fields of the "
                f"array's structs ({', '.join(sorted(inner)) or 'none'})"
            )


def _check_names(definition: TableDefinition, values: set[str]) -> None:
    for name in definition.options.field_columns():
        if name not in values:
            raise _error(
                f"option 'fields.{name}.…' is for {name!r}, which is not a value column; those are "
                f"{', '.join(sorted(values)) or 'none'}"
            )


def _named(options: Mapping[str, object]) -> str:
    return ", ".join(sorted(options))


def _error(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="merge-engine")

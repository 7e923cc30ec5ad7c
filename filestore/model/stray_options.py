"""Refuses options that a table would accept and that would do nothing. Pure.

Each option has an effect with the table's merge engine, or is an error. Tables of earlier versions may have options
without any, which nobody could correct: these are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from filestore.errors import InvalidRequest
from filestore.model.functions import FUNCTIONS
from filestore.model.merging import FieldMerge, MergeEngine
from filestore.model.types import to_sql

if TYPE_CHECKING:
    from filestore.model.definition import TableDefinition

__all__ = ["check_stray_options", "without_effect"]

_RETENTION, _IGNORE_DELETE = "sequence.tombstone-retention", "ignore-delete"


def check_stray_options(definition: TableDefinition, before: TableDefinition | None = None) -> None:
    """Refuses options that have no effect.

    Args:
        definition: The table's definition.
        before: That before a change. What it has stays: options of its columns are fixed, so no user could correct
            them.

    Raises:
        InvalidRequest: ``merge-engine``.
    """
    given, known = definition.options.as_dict(), {} if before is None else before.options.as_dict()
    for name, why in without_effect(given, keyed=bool(definition.primary_key)).items():
        if name not in known:
            raise _error(f"option {name!r} has no effect, since {why}: leave it out")
    columns = frozenset[str]() if before is None else frozenset(before.schema.names)
    own = definition.options.of_fields()
    for name, field in definition.merging.fields.items():
        message = next(_strays(definition, name, field, own.get(name, {})), None) if name not in columns else None
        if message is not None:
            raise _error(message)


def without_effect(options: Mapping[str, str], *, keyed: bool) -> dict[str, str]:
    """Returns the options that change nothing in a table, each with the reason as a clause.

    Args:
        options: The options of the table as they were given, which need not be valid.
        keyed: Whether it has a primary key.
    """
    found: dict[str, str] = {}
    engine = options.get("merge-engine", MergeEngine.DEDUPLICATE)
    remembers = engine == MergeEngine.DEDUPLICATE and "sequence.field" in options
    if _RETENTION in options and not remembers:
        found[_RETENTION] = "only a table with merge-engine = deduplicate and a sequence.field remembers deletes"
    if options.get(_IGNORE_DELETE, "false").strip().lower() == "true" and not keyed:
        found[_IGNORE_DELETE] = "a table without a primary key takes no deletes"
    return found


def _strays(definition: TableDefinition, name: str, field: FieldMerge, own: Mapping[str, object]) -> Iterator[str]:
    """Yields what is wrong with the options of a column; `own` are these."""
    orders = name in field.order_by
    for option, function in (("distinct", "collect"), ("list-agg-delimiter", "listagg")):
        if own.get(option, False) not in (False, FieldMerge().delimiter) and field.function != function:
            yield (
                f"fields.{name}.{option} is for aggregate-function {function}, and column {name!r} has "
                f"{field.function}: leave it out, or set fields.{name}.aggregate-function = {function}"
            )
    if orders and "aggregate-function" in own:
        yield (
            f"column {name!r} orders a sequence group and takes the value of its last row: leave "
            f"fields.{name}.aggregate-function out"
        )
    in_no_group = definition.options["merge-engine"] == MergeEngine.PARTIAL_UPDATE and not field.order_by
    if in_no_group and own.get("ignore-retract", False):
        yield (
            f"fields.{name}.ignore-retract has no effect, since a delete takes nothing from a column that is in no "
            "sequence group: leave it out"
        )
    default = definition.options["fields.default-aggregate-function"]
    decides = name != definition.sequence_field and not orders and "aggregate-function" not in own
    if default is not None and decides and field.function != default:
        column = definition.schema.column(name)
        yield (
            f"fields.default-aggregate-function = {default} takes {FUNCTIONS[default].takes}, and column {name!r} is "
            f"{to_sql(column.type)}: set fields.{name}.aggregate-function"
        )


def _error(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="merge-engine")

"""``partial-update`` and ``aggregation``: merges the rows of a key column by column (FORMAT.md section 9.3). Pure.

A column's function gets its values in row order, or in the order of the column's sequence group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.merge.elements import collect, merge_map, nested_update
from filestore.merge.functions import EXPRESSIONS, rough_sum, wrapped
from filestore.merge.history import ADDS, GROUP, KIND, History
from filestore.merge.out_of_range import out_of_range, within
from filestore.merge.product import check_divisors, product
from filestore.model.functions import FUNCTIONS
from filestore.model.merging import Deletes, FieldMerge, MergeEngine, MergeSpec
from filestore.model.rowkind import RowKind

__all__ = ["Merged", "columns_to_check", "effective_rows", "fitting", "merge_fields"]


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged rows of the keys of a history.

    Attributes:
        rows: One row for each key, in order; for a key without a row only the key columns are meaningful.
        alive: Whether the key has a row.
    """

    rows: pl.DataFrame
    alive: pl.Series


def merge_fields(history: History, spec: MergeSpec, keys: Sequence[str]) -> Merged:
    """Merges column by column.

    Args:
        history: The rows, from `filestore.merge.history.history`.
        spec: The table's merge engine.
        keys: The columns of the primary key.

    Raises:
        InvalidRequest: ``delete-refused``, ``retract-refused``: rows retract what cannot be retracted, such as a 0
            from a product; ``out-of-range``: a column cannot hold its result.
    """
    counting = effective_rows(history, spec, keys)
    named = history.every_key(history.frame.group_by(GROUP, maintain_order=True).agg(pl.col(k).first() for k in keys))
    # a retraction from a sequence group does not count as a row
    there = counting.where(pl.col(ADDS)) if spec.engine is MergeEngine.PARTIAL_UPDATE else counting
    alive = there.every_key(there.frame.select(GROUP).unique(maintain_order=True).with_columns(_alive=True))
    columns: dict[str, pl.Series] = {name: named[name] for name in keys}
    series = {one.name: one for one in counting.frame.get_columns()}
    own = [name for name in series if name not in spec.fields]
    by_view = sorted((_view(name, field, spec), name) for name, field in spec.fields.items())
    for view, names in groupby(by_view, key=lambda seen: seen[0]):
        fields = {name: spec.fields[name] for _, name in names}
        # only these columns, since each step of a group takes time for every column of the frame
        part = pl.DataFrame([series[name] for name in dict.fromkeys([*own, *view[0], *fields])])
        columns |= _merged(_seen(History(part, counting.keys), *view), fields, named)
    rows = pl.DataFrame([columns[name].alias(name) for name in history.frame.columns if name in columns])
    return Merged(rows, alive["_alive"].fill_null(False))


def effective_rows(history: History, spec: MergeSpec, keys: Sequence[str] = ()) -> History:
    """Returns the rows to merge: deletes have been applied, or stay for the fields to retract.

    Raises:
        InvalidRequest: ``delete-refused``, ``retract-refused``; see `merge_fields`.
    """
    if spec.deletes is Deletes.RETRACT or history.frame[ADDS].all():
        if not history.frame[ADDS].all():
            _check_retractions(history, spec)
            for name in _undivided(spec):
                check_divisors(_given(history, spec.fields[name].order_by), name, keys)
        return history
    deletes = pl.col(KIND).eq_missing(str(RowKind.DELETE))
    if spec.deletes is Deletes.REFUSE and history.frame.select(deletes.any()).item():
        raise InvalidRequest(
            f"the rows hold deletes (-D), which merge-engine = {spec.engine} cannot merge: filter them out, or make "
            f"the table with {_cures(spec)}",
            code="delete-refused",
        )
    if spec.deletes is Deletes.REMOVE:
        numbered = History(history.frame.with_row_index("_row"), history.keys)
        last = pl.col("_row").filter(deletes).max().over(GROUP)
        history = numbered.where(last.is_null() | (pl.col("_row") > last))
    return history.where(pl.col(ADDS))


def _undivided(spec: MergeSpec) -> list[str]:
    """Returns the columns of which some values cannot be retracted, whatever the stored row is."""
    if spec.deletes is not Deletes.RETRACT:
        return []
    return [name for name, field in spec.fields.items() if field.function == "product" and not field.ignore_retract]


def _cures(spec: MergeSpec) -> str:
    removes = f" or {spec.engine}.remove-record-on-delete = true" if spec.fields else ""
    return f"ignore-delete = true{removes}"


def columns_to_check(spec: MergeSpec) -> list[str]:
    """The columns that `effective_rows` checks for values that cannot be merged, whatever the stored row is."""
    orders = (name for field in spec.fields.values() for name in field.order_by)
    return list(dict.fromkeys([*_undivided(spec), *orders]))


def _check_retractions(history: History, spec: MergeSpec) -> None:
    """Refuses what a column cannot retract. The first half of an update takes nothing from a sequence group."""
    taken = history.where(~pl.col(ADDS))
    if spec.engine is MergeEngine.PARTIAL_UPDATE:
        taken = taken.where(pl.col(KIND) == str(RowKind.DELETE))
    for name, field in spec.fields.items():
        if not _follows(name, field, spec) and not field.ignore_retract and not FUNCTIONS[field.function].retracts:
            if not _given(taken, field.order_by).frame.height:
                continue
            raise InvalidRequest(
                f"the rows retract values (-U or -D), and column {name!r} has aggregate-function {field.function}, "
                f"which cannot retract them: set fields.{name}.ignore-retract = true, or use another function",
                code="retract-refused",
            )


_View = tuple[tuple[str, ...], bool]


def _view(name: str, field: FieldMerge, spec: MergeSpec) -> _View:
    """Returns which rows a column's function gets: columns with equal views get the same rows in the same order."""
    takes_back = _follows(name, field, spec) or FUNCTIONS[field.function].retracts
    return field.order_by, field.ignore_retract or not takes_back


def _follows(name: str, field: FieldMerge, spec: MergeSpec) -> bool:
    """Returns whether the column orders rows: then it has the value of the last of them, whatever that row does."""
    return name == spec.sequence or name in field.order_by


def _given(history: History, order_by: Sequence[str]) -> History:
    """The rows of a sequence group: those with a value in one of its sequence columns."""
    return history.where(pl.any_horizontal(pl.col(name).is_not_null() for name in order_by)) if order_by else history


def _seen(history: History, order_by: Sequence[str], ignore_retract: bool) -> History:
    seen = history.where(pl.col(ADDS)) if ignore_retract and not history.frame[ADDS].all() else history
    if not order_by:
        return seen
    given = _given(seen, order_by)
    order = [GROUP, *order_by]
    return History(given.frame.sort(order, nulls_last=False, maintain_order=True), given.keys)


def _merged(seen: History, fields: Mapping[str, FieldMerge], keys: pl.DataFrame) -> dict[str, pl.Series]:
    schema = seen.frame.schema
    expressions = {
        name: _expression(name, field, schema[name]).alias(name)
        for name, field in fields.items()
        if field.function in EXPRESSIONS
    }
    rough = [rough_sum(name) for name, f in fields.items() if f.function == "sum" and schema[name].is_decimal()]
    aggregated = seen.frame.group_by(GROUP, maintain_order=True).agg(*expressions.values(), *rough)
    found = seen.every_key(aggregated)
    merged = {name: _fitting(found, fields[name].function, name, schema[name], keys) for name in expressions}
    for name, field in fields.items():
        match field.function:
            case "product":
                merged[name] = product(seen, name, keys)
            case "collect":
                merged[name] = collect(seen, name, distinct=field.distinct)
            case "merge_map":
                merged[name] = merge_map(seen, name)
            case "nested_update":
                merged[name] = nested_update(seen, name, field.nested_key)
    return merged


def _expression(name: str, field: FieldMerge, kind: pl.DataType) -> pl.Expr:
    if name in field.order_by and field.function == "last_value":
        return pl.col(name).last()  # a retraction is a row of the group, too, and may be its last
    return EXPRESSIONS[field.function](pl.col(name), kind, field.delimiter)


def _fitting(found: pl.DataFrame, function: str, name: str, kind: pl.DataType, keys: pl.DataFrame) -> pl.Series:
    """Converts a sum or count to its column's type; other results have it already."""
    values = found[name].fill_null(0) if function == "count" else found[name]  # a group may have no row
    if function not in ("sum", "count") or kind.is_float():
        return values
    fits = within(values, kind)
    if kind.is_decimal():
        fits &= ~wrapped(found, name)
    return fitting(values, fits, function, keys, kind)


def fitting(values: pl.Series, fits: pl.Series, function: str, keys: pl.DataFrame, kind: pl.DataType) -> pl.Series:
    """Converts results to their column's type.

    Args:
        values: One value for each key.
        fits: Which of them the type can hold.
        function: The name of their function.
        keys: A row for each key.
        kind: The type.

    Raises:
        InvalidRequest: ``out-of-range``: the type cannot hold a value.
    """
    if not fits.all():
        raise out_of_range(function, values.name, kind, keys.row(int((~fits).arg_true()[0]), named=True))
    return values.cast(kind)

"""The aggregate functions and their arguments (FORMAT.md section 9.3). `filestore.merge` implements them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["DEFAULT_FUNCTION", "FUNCTIONS", "Function"]

DEFAULT_FUNCTION = "last_non_null_value"
_PRODUCT_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate function.

    Attributes:
        takes: The types of columns that it accepts, in words.
        fits: Whether it accepts a type.
        retracts: Whether it can retract a value.
        ordered: Whether rows have to arrive in order: a row that arrives in a later commit than a row with a higher
            sequence gives another result than in one commit, since it cannot be put in the middle of a merged value.
        rounds: Whether a result depends on how values are divided into commits even if all arrive in order: each
            commit rounds or truncates, and keeps one of 0.0 and -0.0.
        note: Anything else that users have to know.
    """

    takes: str
    fits: Callable[[pa.DataType], bool]
    retracts: bool = False
    ordered: bool = False
    rounds: Callable[[pa.DataType], bool] = lambda kind: False
    note: str = ""


def _any(kind: pa.DataType) -> bool:
    return True


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _factor(kind: pa.DataType) -> bool:
    return _number(kind) and not (pa.types.is_decimal(kind) and kind.precision > _PRODUCT_DIGITS)


def _ordered(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _structs(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


FUNCTIONS: Mapping[str, Function] = {
    "sum": Function(
        "numbers",
        _number,
        retracts=True,
        rounds=pa.types.is_floating,
        note="floats are rounded, so a retraction may not restore the former value: after an infinity it gives NaN",
    ),
    "product": Function(
        f"numbers, decimals of up to {_PRODUCT_DIGITS} digits",
        _factor,
        retracts=True,
        rounds=_any,
        note="a 0 cannot be retracted, except of floats; each step rounds or truncates",
    ),
    "count": Function("a whole number, which holds the count", pa.types.is_integer, retracts=True),
    "min": Function("values with an order", _ordered, rounds=pa.types.is_floating),
    "max": Function("values with an order", _ordered, rounds=pa.types.is_floating),
    "first_value": Function("any values", _any, ordered=True),
    "first_non_null_value": Function("any values", _any, ordered=True),
    "last_value": Function("any values", _any, retracts=True),
    "last_non_null_value": Function("any values", _any, ordered=True),
    "listagg": Function("strings", pa.types.is_string, ordered=True),
    "bool_and": Function("booleans", pa.types.is_boolean),
    "bool_or": Function("booleans", pa.types.is_boolean),
    "collect": Function("arrays", pa.types.is_list, retracts=True, ordered=True),
    "merge_map": Function("maps", pa.types.is_map, ordered=True),
    "nested_update": Function("arrays of structs", _structs, ordered=True),
}
"""The functions by the names that Paimon gives them."""

"""Converts a JSON value to a column's value, by the rules of ``json``, ``debezium-json`` and ``canal-json``.

They are those of Flink's formats where these lose nothing: numbers may stand in strings and the reverse; but a number
with a fraction is no integer, digits for which a DECIMAL or a TIMESTAMP has no place are refused unless they are zeros,
and what does not fit is malformed.
These functions take single values: `json_documents` uses them only for messages that Arrow's parser does not take.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from filestore.model.text import none_named
from filestore.model.types import canonical, to_sql

__all__ = ["TOPICS", "Number", "Place", "Rules", "check_members", "column_value", "load", "shown"]

_EPOCH = dt.date(1970, 1, 1)
_LIMITS = Context(prec=76, Emax=999, Emin=-999)
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
"""A part of a microsecond, which Python's parser would cut off."""
_DASHED = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]|$)")
"""Python's parser takes more: of 1712010112345, milliseconds of 2024, it makes 23:45 on a day in 1712."""
_LONGEST = 20
"""An integer beyond so many digits is in no column; ``1e999999999`` would take memory for all of them."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which a JSON value is a column's, where writers differ. The defaults are those of Flink's formats.

    Args:
        unknown: A member that no column and no field has is passed over; otherwise it is refused.
        entries: A MAP may also be an array of ``{"key": …, "value": …}``, as `log.json_rows` writes it.
        days: A number counts days since 1970 for a DATE; otherwise it is refused, since it may be a year.
        zones: A TIMESTAMP without an offset is in UTC, and a TIMESTAMP_NTZ with one is its time in UTC; otherwise a
            TIMESTAMP needs an offset, and a TIMESTAMP_NTZ has none.
    """

    unknown: bool = True
    entries: bool = False
    days: bool = True
    zones: bool = True


TOPICS = Rules()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a value, for errors, and the rules there."""

    path: str
    rules: Rules = TOPICS

    def __str__(self) -> str:
        return self.path

    def inside(self, step: str) -> Place:
        """Returns the place of a part."""
        return Place(f"{self.path}{step}", self.rules)


class Number(str):
    """A JSON number as its message spells it: ``1e5`` is a STRING's text, and no digit is lost on the way to others."""

    __slots__ = ()


def load(message: bytes) -> Any:
    """Parses the document of a message, with each number as a `Number`.

    Raises:
        ValueError: it is none; the text says where it breaks.
    """
    try:
        return json.loads(message.decode(), parse_float=Number, parse_int=Number)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("not JSON: nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error


def column_value(value: Any, kind: pa.DataType, place: Place) -> Any:
    """Returns a JSON value as a column has it, for `pyarrow.array`.

    Raises:
        ValueError: it is none of that type; the text names the place, the value and the type.
    """
    if value is None:
        return None
    for matches, read in _READERS:
        if matches(kind):
            try:
                return read(value, kind, place)
            except (TypeError, ArithmeticError, binascii.Error) as error:
                raise _wrong(value, kind, place) from error
    raise _wrong(value, kind, place)


def _wrong(value: Any, kind: pa.DataType, place: Place, why: str = "") -> ValueError:
    return ValueError(f"{place}: {shown(value)} is no {to_sql(canonical(kind))}{why and f': {why}'}")


def shown(value: Any) -> str:
    """Returns the JSON text of a value as an error shows it."""
    text = _spelled(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _boolean(value: Any, kind: pa.DataType, place: Place) -> bool:
    word = str(value).strip().lower()
    if word in ("true", "1"):
        return True
    if word in ("false", "0"):
        return False
    raise _wrong(value, kind, place)


def _integer(value: Any, kind: pa.DataType, place: Place) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        raise _wrong(value, kind, place)
    try:
        number = value if isinstance(value, int) else Decimal(value.strip() if isinstance(value, str) else value)
        if isinstance(number, Decimal) and number.adjusted() >= _LONGEST:
            raise _wrong(value, kind, place)
        whole = int(number)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise _wrong(value, kind, place) from error
    high = 1 << (kind.bit_width - 1)
    if whole != number or not -high <= whole < high:
        raise _wrong(value, kind, place)
    return whole


def _floating(value: Any, kind: pa.DataType, place: Place) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise _wrong(value, kind, place)
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise _wrong(value, kind, place) from error
    if math.isinf(number) and "inf" not in str(value).lower():
        raise _wrong(value, kind, place)
    if kind.bit_width == 32:
        struct.pack("<f", number)  # OverflowError: it would become infinite
    return number


def _decimal(value: Any, kind: pa.DataType, place: Place) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise _wrong(value, kind, place)
    try:
        given = Decimal(value.strip() if isinstance(value, str) else value)
        number = given.quantize(Decimal(1).scaleb(-kind.scale), context=_LIMITS)
    except InvalidOperation as error:
        raise _wrong(value, kind, place) from error
    if number != given:
        raise _wrong(value, kind, place, "it would be rounded")
    if not number.is_finite() or number.copy_abs() >= Decimal(10) ** (kind.precision - kind.scale):
        raise _wrong(value, kind, place)
    return number


def _string(value: Any, kind: pa.DataType, place: Place) -> str:
    text = str(value) if isinstance(value, str) else _spelled(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, as an escape
        raise ValueError(f"{place}: a string that is no Unicode text") from error
    return text


def _spelled(value: Any) -> str:
    """The JSON text of a value, without spaces, as Flink has it; numbers as the message has them."""
    if isinstance(value, dict):
        members = []
        for name, member in value.items():
            members.append(f"{_spelled(name)}:{_spelled(member)}")
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        elements = []
        for element in value:
            elements.append(_spelled(element))
        return "[" + ",".join(elements) + "]"
    return str(value) if isinstance(value, (Number, Decimal)) else json.dumps(value, ensure_ascii=False)


def _binary(value: Any, kind: pa.DataType, place: Place) -> bytes:
    if isinstance(value, Number):
        raise _wrong(value, kind, place)
    return base64.b64decode(value, validate=True)


def _date(value: Any, kind: pa.DataType, place: Place) -> dt.date:
    if isinstance(value, Number):  # days, as Debezium and Connect have them
        if not place.rules.days:
            raise _wrong(value, kind, place, "what a number counts is not known, write it as 2026-01-31")
        return _EPOCH + dt.timedelta(days=_integer(value, pa.int32(), place))
    if not isinstance(value, str):
        raise _wrong(value, kind, place)
    try:
        return dt.date.fromisoformat(value.strip())
    except ValueError as error:
        raise _wrong(value, kind, place) from error


def _timestamp(value: Any, kind: pa.DataType, place: Place) -> dt.datetime:
    if isinstance(value, Number):
        raise _wrong(value, kind, place, f"what a number counts is not known, write it as {_moment_of(kind)}")
    if not isinstance(value, str) or not _DASHED.match(value.strip()):
        raise _wrong(value, kind, place)
    try:
        moment = dt.datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise _wrong(value, kind, place) from error
    if _FINER.search(value):
        raise _wrong(value, kind, place, "its nanoseconds would be cut off")
    if not place.rules.zones and (moment.tzinfo is None) != (kind.tz is None):
        raise _wrong(value, kind, place, f"write it as {_moment_of(kind)}")
    if moment.tzinfo is None:
        return moment.replace(tzinfo=dt.UTC) if kind.tz else moment
    moment = moment.astimezone(dt.UTC)
    return moment if kind.tz else moment.replace(tzinfo=None)


def _moment_of(kind: pa.DataType) -> str:
    return "2026-01-31 12:00:00Z, with its time zone" if kind.tz else "2026-01-31 12:00:00, without a time zone"


def _list(value: Any, kind: pa.DataType, place: Place) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, kind, place)
    return [column_value(v, kind.value_type, place.inside(f"[{i}]")) for i, v in enumerate(value)]


def _struct(value: Any, kind: pa.DataType, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(value, kind, place)
    check_members(value, [f.name for f in kind], place)
    return {f.name: column_value(value.get(f.name), f.type, place.inside(f".{f.name}")) for f in kind}


def check_members(value: Iterable[str], names: Sequence[str], place: Place) -> None:
    """Refuses a member that has no column or field, where the rules say so."""
    if place.rules.unknown:
        return
    for name in value:
        if name not in names:
            prefix, what = (f"{place}: ", "field") if place.path else ("", "column")
            raise ValueError(prefix + none_named(what, name, names))


def _map(value: Any, kind: pa.DataType, place: Place) -> list[tuple[Any, Any]]:
    if isinstance(value, list) and place.rules.entries:
        entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        pairs = [_struct(v, entry, place.inside(f"[{i}]")) for i, v in enumerate(value)]
        if any(pair["key"] is None for pair in pairs):
            raise _wrong(value, kind, place, "a key is null")
        return [(pair["key"], pair["value"]) for pair in pairs]
    if not isinstance(value, dict) or not pa.types.is_string(kind.key_type):
        raise _wrong(value, kind, place)
    return [
        (_string(k, kind.key_type, place), column_value(v, kind.item_type, place.inside(f".{k}")))
        for k, v in value.items()
    ]


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType, Place], Any]], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_list, _list),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
)

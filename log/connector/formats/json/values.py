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
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

__all__ = ["Number", "column_value", "load", "shown"]

_EPOCH = dt.date(1970, 1, 1)
_LIMITS = Context(prec=76, Emax=999, Emin=-999)
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
"""A part of a microsecond, which Python's parser would cut off."""
_LONGEST = 20
"""An integer beyond so many digits is in no column; ``1e999999999`` would take memory for all of them."""


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
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("not JSON: nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error


def column_value(value: Any, kind: pa.DataType, place: str) -> Any:
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


def _wrong(value: Any, kind: pa.DataType, place: str, why: str = "") -> ValueError:
    return ValueError(f"{place}: {shown(value)} is no {kind}{why and f', {why}'}")


def shown(value: Any) -> str:
    """Returns the JSON text of a value as an error shows it."""
    text = _spelled(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _boolean(value: Any, kind: pa.DataType, place: str) -> bool:
    word = str(value).strip().lower()
    if word in ("true", "1"):
        return True
    if word in ("false", "0"):
        return False
    raise _wrong(value, kind, place)


def _integer(value: Any, kind: pa.DataType, place: str) -> int:
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


def _floating(value: Any, kind: pa.DataType, place: str) -> float:
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


def _decimal(value: Any, kind: pa.DataType, place: str) -> Decimal:
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


def _string(value: Any, kind: pa.DataType, place: str) -> str:
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


def _binary(value: Any, kind: pa.DataType, place: str) -> bytes:
    if isinstance(value, Number):
        raise _wrong(value, kind, place)
    return base64.b64decode(value, validate=True)


def _date(value: Any, kind: pa.DataType, place: str) -> dt.date:
    if isinstance(value, Number):  # days, as Debezium and Connect have them
        return _EPOCH + dt.timedelta(days=_integer(value, pa.int32(), place))
    if not isinstance(value, str):
        raise _wrong(value, kind, place)
    try:
        return dt.date.fromisoformat(value.strip())
    except ValueError as error:
        raise _wrong(value, kind, place) from error


def _timestamp(value: Any, kind: pa.DataType, place: str) -> dt.datetime:
    if not isinstance(value, str) or isinstance(value, Number):
        raise _wrong(value, kind, place)
    try:
        moment = dt.datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise _wrong(value, kind, place) from error
    if _FINER.search(value):
        raise _wrong(value, kind, place, "its nanoseconds would be cut off")
    if moment.tzinfo is None:
        return moment.replace(tzinfo=dt.UTC) if kind.tz else moment
    moment = moment.astimezone(dt.UTC)
    return moment if kind.tz else moment.replace(tzinfo=None)


def _list(value: Any, kind: pa.DataType, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, kind, place)
    return [column_value(v, kind.value_type, f"{place}[{i}]") for i, v in enumerate(value)]


def _struct(value: Any, kind: pa.DataType, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(value, kind, place)
    return {f.name: column_value(value.get(f.name), f.type, f"{place}.{f.name}") for f in kind}


def _map(value: Any, kind: pa.DataType, place: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _wrong(value, kind, place)
    return [
        (_string(k, kind.key_type, place), column_value(v, kind.item_type, f"{place}.{k}")) for k, v in value.items()
    ]


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType, str], Any]], ...] = (
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

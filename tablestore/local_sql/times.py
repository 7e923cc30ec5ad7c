"""Functions of days and moments that DuckDB evaluates as Spark does. Pure.

A DATE is a number of days, and a TIMESTAMP a number of microseconds, of which a session's time zone makes days and
hours. So what depends on the zone is computed here in UTC alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from tablestore.local_sql.refusal import NotLocalError, only
from tablestore.local_sql.typed import Typed, Values, Writer, text_literal

__all__ = ["OF_TIMES", "day_of", "moment_literal"]

_MOMENT, _WITHOUT_ZONE = pa.timestamp("us", "UTC"), pa.timestamp("us")
_OF_DAYS: Mapping[type[exp.Expr], str] = {
    exp.Year: "year({})",
    exp.Quarter: "quarter({})",
    exp.Month: "month({})",
    exp.Day: "day({})",
    exp.DayOfMonth: "day({})",
    exp.DayOfYear: "dayofyear({})",
    exp.DayOfWeek: "dayofweek({}) + 1",  # Sunday is 1
    exp.WeekOfYear: "week({})",
}
_OF_MOMENTS: Mapping[type[exp.Expr], str] = {
    exp.Hour: "hour({})",
    exp.Minute: "minute({})",
    exp.Second: "second({})",
}
_EXTRACTED: Mapping[str, type[exp.Expr]] = {
    "YEAR": exp.Year,
    "QUARTER": exp.Quarter,
    "MONTH": exp.Month,
    "DAY": exp.Day,
    "HOUR": exp.Hour,
    "MINUTE": exp.Minute,
}
"""The fields of EXTRACT. A second is a DECIMAL there."""
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_COUNTS = (pa.int8(), pa.int16(), pa.int32())
_LITERAL = re.compile(r"(?!0000)\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8]) ([01]\d|2[0-3]):[0-5]\d:[0-5]\d", re.ASCII)
"""Moments of days that every month has; others are for Spark."""


def day_of(of: Values, node: exp.Expr) -> Typed:
    """Writes the day of a DATE or of a moment."""
    if isinstance(node, exp.TsOrDsToDate):
        only(node, "this", "safe")
        return day_of(of, node.this)
    found = of.typed(node)
    if found.kind == pa.date32():
        return found
    moment = _moment(of, node, found)
    return Typed(f"CAST({moment.text} AS DATE)", pa.date32(), moment.uses)


def moment_literal(of: Values, text: str) -> Typed:
    """Writes a moment that is written out."""
    if not of.in_utc or not _LITERAL.fullmatch(text):
        raise NotLocalError(f"it has the TIMESTAMP {text!r}{'' if of.in_utc else ', and does not run in UTC'}")
    return Typed(f"TIMESTAMP {text_literal(text)}", _MOMENT)


def _moment(of: Values, node: exp.Expr, found: Typed) -> Typed:
    if found.kind not in (_MOMENT, _WITHOUT_ZONE):
        raise NotLocalError(f"{node.sql('spark')} in it is no DATE and no TIMESTAMP")
    if found.kind == _MOMENT and not of.in_utc:
        raise NotLocalError(f"it has a day or an hour of {node.sql('spark')}, and does not run in UTC")
    return found


def _of_day(of: Values, node: exp.Expr) -> Typed:
    only(node, "this")
    return _number(_OF_DAYS[type(node)], day_of(of, node.this))


def _of_moment(of: Values, node: exp.Expr) -> Typed:
    only(node, "this")
    return _number(_OF_MOMENTS[type(node)], _moment(of, node.this, of.typed(node.this)))


def _number(form: str, of: Typed) -> Typed:
    return Typed(f"CAST({form.format(of.text)} AS INTEGER)", pa.int32(), of.uses)


def _extracted(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "expression")
    kind = _EXTRACTED.get(node.name.upper())
    if kind is None or not isinstance(node.this, exp.Var):
        raise NotLocalError(f"it has {node.sql('spark')}")
    return OF_TIMES[kind](of, kind(this=node.expression.copy()))


def _truncated(of: Values, node: exp.Expr) -> Typed:
    """Writes DATE_TRUNC. That its unit is written out has been checked by `tablestore.local_sql.calls`."""
    only(node, "this", "unit")
    unit = node.args["unit"].name.upper()
    found = of.typed(node.this)
    if unit not in _UNITS or found.kind != _MOMENT:
        raise NotLocalError(f"it has {node.sql('spark')}")
    moment = _moment(of, node.this, found)
    return Typed(f"CAST(date_trunc('{unit.lower()}', {moment.text}) AS TIMESTAMP)", _MOMENT, moment.uses)


def _later(of: Values, node: exp.Expr) -> Typed:
    """Writes DATE_ADD and DATE_SUB."""
    only(node, "this", "expression", "unit")
    days = of.typed(node.expression)
    if node.args["unit"].name.upper() != "DAY" or days.kind not in _COUNTS:
        raise NotLocalError(f"it has {node.sql('spark')}")
    start = day_of(of, node.this)
    return Typed(f"({start.text} + {days.cast(pa.int32())})", pa.date32(), start.uses | days.uses)


def _apart(of: Values, node: exp.Expr) -> Typed:
    """Writes DATEDIFF of two days."""
    only(node, "this", "expression")
    end, start = day_of(of, node.this), day_of(of, node.expression)
    return Typed(f"CAST({end.text} - {start.text} AS INTEGER)", pa.int32(), end.uses | start.uses)


def _last_day(of: Values, node: exp.Expr) -> Typed:
    only(node, "this")
    found = day_of(of, node.this)
    return Typed(f"last_day({found.text})", pa.date32(), found.uses)


OF_TIMES: Mapping[type[exp.Expr], Writer] = {
    **dict.fromkeys(_OF_DAYS, _of_day),
    **dict.fromkeys(_OF_MOMENTS, _of_moment),
    exp.Extract: _extracted,
    exp.TimestampTrunc: _truncated,
    exp.TsOrDsToDate: day_of,
    exp.TsOrDsAdd: _later,
    exp.DateDiff: _apart,
    exp.LastDay: _last_day,
}
"""The functions, by the nodes as which they are read."""

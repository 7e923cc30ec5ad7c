"""Days and times in other formats than ISO 8601, rewritten as it before they are read. Vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from filestore.lazily import pl

__all__ = ["check_time_format", "in_iso"]

_SLASHES = (
    (r"^([0-9]{4}/)([0-9]/)", "${1}0${2}"),
    (r"^([0-9]{4}/[0-9][0-9]/)([0-9])($|[ T])", "${1}0${2}${3}"),
    (r"^([0-9]{4})/([0-9][0-9])/([0-9][0-9])($|[ T])", "${1}-${2}-${3}${4}"),
)
"""2015/1/31 has its year first, so it can be only one day; 1/2/2015 may be two."""
_OF_TIMES = ("%H", "%I", "%M", "%S", "%T", "%R", "%X", "%c", "%s", "%k", "%l", "%r")
_CHANGED = r"\.[0-9]{6}[0-9]*[1-9]|:60"
"""A part of a microsecond, which would be cut off, and a leap second, which would be the next minute."""
_DAYS = ("2015-03-15", "2009-03-15", "2015-02-15", "2015-03-22", "2015-03-16")
"""A day, and others in another year, month, week and day; the first four are Sundays."""
_FIRST_YEAR = 1000
"""``%Y`` takes the year 15 of 01.02.15, which is meant as another one."""


def check_time_format(pattern: str) -> str | None:
    """Returns why a format is none; None if it is one."""
    days = pl.Series(_DAYS)
    try:
        if "%" not in pattern:
            return f"{pattern!r} is no format of days or times: write it as %d.%m.%Y or '%m/%d/%Y %H:%M'"
        _parsed(days, pattern)
        written = days.str.to_datetime("%Y-%m-%d", time_zone="UTC").dt.strftime(pattern)  # refuses what means nothing
    except pl.exceptions.PolarsError as error:
        return f"{pattern!r} is no format of days or times: {str(error).partition(chr(10))[0]}"
    if written.n_unique() < len(days):
        return f"{pattern!r} does not say which day it is: it needs the year, the month and the day, as %d.%m.%Y has"
    return None


def in_iso(texts: pa.Array, formats: Sequence[str]) -> pa.Array:
    """Rewrites texts in one of some formats, the first that fits, and such as 2015/01/31; others stay as they are."""
    given = pl.Series(pl.from_arrow(texts))
    column = reduce(lambda text, rule: text.str.replace(*rule), _SLASHES, given)
    for pattern in reversed(formats):
        frame = pl.DataFrame({"given": given, "found": _parsed(given, pattern), "else": column})
        fits = pl.col("found").is_not_null() & ~pl.col("given").str.contains(_CHANGED)
        column = frame.select(pl.when(fits).then("found").otherwise("else")).to_series()
    return column.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _parsed(texts: pl.Series, pattern: str) -> pl.Series:
    """Returns the texts in ISO that have the format; null for others."""
    if not any(part in pattern for part in _OF_TIMES):
        days = texts.str.to_date(pattern, strict=False)
        return _in_range(days, pattern).dt.strftime("%Y-%m-%d")
    moments = texts.str.to_datetime(pattern, strict=False, time_unit="us")
    zone = "Z" if isinstance(moments.dtype, pl.Datetime) and moments.dtype.time_zone else ""
    return _in_range(moments, pattern).dt.strftime("%Y-%m-%d %H:%M:%S%.6f" + zone)


def _in_range(values: pl.Series, pattern: str) -> pl.Series:
    """Makes years null that a format has mistaken."""
    if "%Y" not in pattern:
        return values
    frame = pl.DataFrame({"value": values})
    return frame.select(pl.when(pl.col("value").dt.year() >= _FIRST_YEAR).then("value")).to_series()

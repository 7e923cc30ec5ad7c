"""Finds the facts of values that are written as texts: fields of CSV, and numbers and strings of JSON. Vectorised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.lazily import pl
from log.connector.formats.csv_times import in_iso
from tablestore.incoming.files.facts import Facts, Kind, Seen

__all__ = ["field_facts", "number_facts", "string_facts"]

_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_NUMBER = r"^-?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_CODE = r"^-?[0-9]+[eE][0-9]+$"
"""1E5 may be a number or a code; a program that writes numbers writes 1e+5, 1.0E5 or 100000."""
_NO_NUMBER = r"^(NaN|nan|-?inf|-?Infinity)$"
_BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6}0*)?)?$"
_INSTANT = _LOCAL.removesuffix("$") + "(Z|[+-](0[0-9]|1[0-4]):?[0-5][0-9])$"

_EXACT_DIGITS = 15
"""A DOUBLE holds so many digits of any number, if its exponent is not at the end of the range."""
_EXACT_EXPONENT = 290


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The spelling of one kind of values: a pattern, and what else has to hold."""

    kind: Kind
    pattern: str
    other: str | None = None
    valid: Callable[[pl.Series], pl.Series] | None = None

    def among(self, texts: pl.Series) -> pl.Series:
        """Marks the texts that are of this kind."""
        found = texts.str.contains(self.pattern)
        if self.other is not None:
            found = found & ~texts.str.contains(self.other)
        return found & self.valid(texts) if self.valid is not None and found.any() else found


def _is_day(texts: pl.Series) -> pl.Series:
    return texts.str.to_date("%Y-%m-%d", strict=False).dt.year().ge(1).fill_null(False)


def _begins_with_day(texts: pl.Series) -> pl.Series:
    return _is_day(texts.str.slice(0, 10))


def _is_instant(texts: pl.Series) -> pl.Series:
    """Checks that the time is within the years 1 to 9999 in UTC, too."""
    year = texts.str.slice(0, 4)
    return _begins_with_day(texts) & (year > "0001") & (year < "9999")


_FIELDS = (
    _Spelling(Kind.INTEGER, _INTEGER),
    _Spelling(Kind.NUMBER, _NUMBER, _CODE),
    _Spelling(Kind.DAY, _DAY, valid=_is_day),
    _Spelling(Kind.LOCAL, _LOCAL, valid=_begins_with_day),
    _Spelling(Kind.INSTANT, _INSTANT, valid=_is_instant),
    _Spelling(Kind.BOOLEAN, _BOOLEAN),
    _Spelling(Kind.NO_NUMBER, _NO_NUMBER),
)
_NUMBERS = (_Spelling(Kind.INTEGER, _INTEGER), _Spelling(Kind.NUMBER, _NUMBER))
_STRINGS = tuple(one for one in _FIELDS if one.kind in (Kind.DAY, Kind.LOCAL, Kind.INSTANT, Kind.NO_NUMBER))


def field_facts(fields: pa.Array, times: Sequence[str], before: Facts) -> Facts:
    """Returns what is known of a column of CSV: of those fields, and of those before.

    Args:
        fields: The texts; nulls do not count.
        times: Formats of days and times (`CsvStyle`).
        before: What is known of fields before. If these are a text, nothing more is looked at.
    """
    if before.is_text:
        return before
    given = pl.Series(pl.from_arrow(fields.drop_null()))
    found = _facts(given, _FIELDS, lambda texts: _rewritten(texts, times))
    if times and not found.is_text and found.has_numbers:
        found = replace(found, dated=_dated(given, times))
    return before + found


def number_facts(texts: pl.Series) -> Facts:
    """Returns what is known of values of JSON that are neither strings nor nested nor literal names."""
    return _facts(texts, _NUMBERS)


def string_facts(texts: pl.Series) -> Facts:
    """Returns what is known of strings of JSON without their quotes; escapes stay as they are."""
    return _facts(texts, _STRINGS)


def _rewritten(texts: pl.Series, times: Sequence[str]) -> pl.Series:
    return pl.Series(pl.from_arrow(in_iso(texts.to_arrow(compat_level=pl.CompatLevel.oldest()), times)))


def _facts(
    texts: pl.Series, spellings: Sequence[_Spelling], moments: Callable[[pl.Series], pl.Series] | None = None
) -> Facts:
    """Takes kind after kind out of the texts; what remains is text.

    Args:
        texts: The values.
        spellings: The kinds.
        moments: Rewrites days and times in other formats, which are looked for where no other kind is.
    """
    found = Facts()
    for spelling in spellings:
        if not len(texts):
            return found
        marked = spelling.among(texts)
        if marked.any():
            found += _of_kind(spelling.kind, texts.filter(marked))
            texts = texts.filter(~marked)
    if moments is not None and len(texts):
        rewritten = moments(texts)
        changed = rewritten != texts
        if changed.any():
            found += _named(_facts(rewritten.filter(changed), _STRINGS), texts.filter(changed))
            texts = texts.filter(~changed)
    return found + Facts({Kind.TEXT: Seen(len(texts), texts[0])}) if len(texts) else found


def _dated(texts: pl.Series, times: Sequence[str]) -> Mapping[Kind, Seen]:
    """Returns which numbers are days or times by a format that was given."""
    numbers = texts.filter(_FIELDS[0].among(texts) | _FIELDS[1].among(texts))
    rewritten = _rewritten(numbers, times)
    changed = rewritten != numbers
    return _named(_facts(rewritten.filter(changed), _STRINGS), numbers.filter(changed)).seen


def _named(found: Facts, texts: pl.Series) -> Facts:
    """Shows the first text as it was written, if all are of one kind."""
    if len(found.seen) > 1:
        return found
    return Facts({kind: Seen(seen.count, texts[0]) for kind, seen in found.seen.items()})


def _of_kind(kind: Kind, texts: pl.Series) -> Facts:
    seen = {kind: Seen(len(texts), texts[0])}
    if kind is Kind.INTEGER:
        widest = texts.filter(texts.str.len_bytes() > _EXACT_DIGITS)
        digits = texts.str.strip_prefix("-").str.len_bytes().max()
        assert isinstance(digits, int)
        long = bool(widest.cast(pl.Int64, strict=False).is_null().any())
        return Facts(seen, digits=digits, long=long, inexact=not _are_exact(_parts(widest), widest))
    if kind is Kind.NUMBER:
        parts = _parts(texts)
        sizes = parts.select(
            (pl.col("digits").str.len_bytes().cast(pl.Int64) + pl.col("exponent")).max().alias("digits"),
            (-pl.col("exponent")).max().alias("places"),
        ).row(0)
        unknown = bool(parts["exponent"].is_null().any())  # an exponent of 20 digits
        digits, places = (max(0, size or 0) for size in sizes)
        return Facts(seen, digits, places, inexact=unknown or not _are_exact(parts, texts))
    return Facts(seen)


def _parts(numbers: pl.Series) -> pl.DataFrame:
    """Returns the digits of numbers without zeros at both ends, and the power of ten of the last one."""
    groups = numbers.str.extract_groups(r"^-?([0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$").struct.unnest()
    whole, fraction, power = (pl.col(name).fill_null("") for name in groups.columns)
    joined = pl.concat_str(whole, fraction)
    exponent = pl.when(power == "").then(pl.lit(0)).otherwise(
        power.str.strip_prefix("+").cast(pl.Int64, strict=False)
    ) - fraction.str.len_bytes().cast(pl.Int64)
    ended = joined.str.strip_chars_end("0")
    shifted = exponent + (joined.str.len_bytes().cast(pl.Int64) - ended.str.len_bytes().cast(pl.Int64))
    digits = ended.str.strip_chars_start("0")
    return groups.select(
        digits.alias("digits"), pl.when(digits == "").then(pl.lit(0, pl.Int64)).otherwise(shifted).alias("exponent")
    )


def _are_exact(parts: pl.DataFrame, numbers: pl.Series) -> bool:
    """Returns whether each number is the one that its DOUBLE is written as."""
    size = pl.col("digits").str.len_bytes().cast(pl.Int64)
    power = size + pl.col("exponent")
    certain = (size <= _EXACT_DIGITS) & (power.abs() <= _EXACT_EXPONENT)
    left = ~parts.select(certain.fill_null(False)).to_series()
    if not left.any():
        return True
    doubles = numbers.filter(left).cast(pl.Float64, strict=False)
    if not doubles.is_finite().fill_null(False).all():
        return False
    return parts.filter(left).equals(_parts(doubles.cast(pl.String)))

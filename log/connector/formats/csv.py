"""``csv``: a message is a line of the columns' values, in order, without a header (FORMATS.md). Insert-only.

A field that is empty and not quoted is null, a quoted empty one is an empty text, unless ``csv.null-literal`` says how
nulls are written. Messages whose quotes are regular are parsed together; others one by one, to say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.rows.numbers import floats_of_texts
from log.connector.formats.format import (
    Decoded,
    Index,
    inserts,
    metadata_fields,
    nullable,
    split_kinds,
    split_tombstones,
)
from log.connector.formats.json.values import TOPICS, Place, Rules, column_value
from log.json_rows import check_range

__all__ = ["CsvFormat", "check_csv_type"]


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Encodes and decodes rows as lines of CSV.

    Args:
        schema: The columns.
        delimiter: Between fields: one character.
        quote: Around fields: one character, or None.
        escape: Before a character that is meant as itself: one character, or None.
        null_literal: How nulls are written; None: as nothing.
        element_delimiter: Between the elements of an ARRAY or STRUCT in their field.
        allow_comments: Messages that begin with ``#`` have no rows.
        rules: What stands for a value.
    """

    schema: pa.Schema
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None
    element_delimiter: str = ";"
    allow_comments: bool = False
    rules: Rules = TOPICS

    changelog: ClassVar[bool] = False
    metadata: ClassVar[Mapping[str, pa.DataType]] = {}

    # ---------------------------------------------------------------------------------------------- encoding

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes each row as a line, without its end."""
        columns, _ = split_kinds(rows, self.schema, changelog=False)
        for field in columns.schema:
            check_range(columns[field.name], field.name)
        texts = {
            f"{i}": self._field(c.combine_chunks(), f.name)
            for i, (c, f) in enumerate(zip(columns, self.schema, strict=True))
        }
        line = pl.concat_str(list(texts), separator=self.delimiter)
        return [*pl.DataFrame(texts).select(line).to_series().cast(pl.Binary).to_list()]

    def _field(self, array: pa.Array, name: str) -> pl.Series:
        kind = array.type
        null = self.null_literal or ""
        if not pa.types.is_nested(kind):
            text = _words(array)
            return self._framed(text, name, always=text == null).fill_null(null)
        if pa.types.is_struct(kind):
            parts = [self._element(child, name) for child in array.flatten()]
            frame = pl.DataFrame({f"{i}": part for i, part in enumerate(parts)})
            text = frame.select(pl.concat_str(pl.all(), separator=self.element_delimiter)).to_series()
        else:
            text = self._joined(array, name)
        frame = pl.DataFrame({"text": text, "valid": pl.Series(pl.from_arrow(array.is_valid()))})
        text = frame.select(pl.when("valid").then("text")).to_series()
        return self._framed(text, name, always=text == null).fill_null(null)

    def _joined(self, array: pa.Array, name: str) -> pl.Series:
        elements = self._element(array.flatten(), name).to_arrow(compat_level=pl.CompatLevel.oldest())
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, elements.cast(pa.string())), self.element_delimiter)
        if pc.any(pc.and_(pc.equal(joined, ""), pa.array(lengths > 0))).as_py():
            raise InvalidRequest(
                f"column {name!r} has an ARRAY of one null, which reads as an empty one: set csv.null-literal",
                code="format-value",
            )
        return pl.Series(pl.from_arrow(joined))

    def _element(self, array: pa.Array, name: str) -> pl.Series:
        text = _words(array)
        if text.str.contains(self.element_delimiter, literal=True).any() or (text == (self.null_literal or "")).any():
            raise InvalidRequest(
                f"column {name!r} has an element that is empty, or the null literal, or holds "
                f"{self.element_delimiter!r}: csv cannot distinguish it; set csv.array-element-delimiter and "
                "csv.null-literal to what no element holds",
                code="format-value",
            )
        return text.fill_null(self.null_literal or "")

    def _framed(self, text: pl.Series, name: str, *, always: pl.Series) -> pl.Series:
        """Texts in quotes or with escapes where they need them."""
        special = [self.delimiter, "\n", "\r", *(c for c in (self.quote, self.escape) if c)]
        needs = text.str.contains_any(special) | always
        if self.allow_comments:
            needs |= text.str.starts_with("#")
        if not needs.any():
            return text
        if self.quote is None and self.escape is None:
            raise InvalidRequest(
                f"column {name!r} has a text with a delimiter or an end of line, or one that reads as null: csv cannot "
                "hold it without csv.quote-character or csv.escape-character",
                code="format-value",
            )
        escaped = text
        if self.escape is not None:
            escaped = escaped.str.replace_all(self.escape, self.escape * 2, literal=True)
        if self.quote is None:
            assert self.escape is not None
            return self._escaped(escaped, name, always)
        escaped = escaped.str.replace_all(self.quote, (self.escape or self.quote) + self.quote, literal=True)
        frame = pl.DataFrame({"plain": text, "escaped": escaped, "needs": needs})
        quoted = pl.concat_str(pl.lit(self.quote), "escaped", pl.lit(self.quote))
        return frame.select(pl.when("needs").then(quoted).otherwise("plain")).to_series()

    def _escaped(self, text: pl.Series, name: str, always: pl.Series) -> pl.Series:
        if always.any() or text.str.contains_any(["\n", "\r"]).any():
            raise InvalidRequest(
                f"column {name!r} has a text with an end of line, or one that reads as null: csv cannot hold it "
                "without csv.quote-character",
                code="format-value",
            )
        return text.str.replace_all(self.delimiter, f"{self.escape}{self.delimiter}", literal=True)

    # ---------------------------------------------------------------------------------------------- decoding

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes each line as a row."""
        metadata_fields(self.metadata, metadata)
        messages, places, tombstones = split_tombstones(values)
        bad: dict[int, str] = {}
        text, places = _texts(messages, places, bad)
        if self.allow_comments:
            rows = ~text.str.starts_with("#")
            text, places = text.filter(rows), places[rows.to_numpy()]
        fields, lines = self._fields(text, places, bad)
        return inserts(self.typed(fields, lines, bad), self.schema, lines, tombstones, bad)

    def typed(self, fields: pa.Table, lines: Index, bad: dict[int, str]) -> pa.Table:
        """Returns fields as the columns' types.

        Args:
            fields: The columns' texts, in order.
            lines: The number of each row.
            bad: Gets the number of each row with a text that does not fit, and the reason.
        """
        columns = []
        for column, field in zip(fields.columns, self.schema, strict=True):
            columns.append(_typed(column.combine_chunks(), field, lambda i: int(lines[i]), bad, self))
        return pa.Table.from_arrays(columns, schema=nullable(self.schema))

    def _fields(self, text: pl.Series, places: Index, bad: dict[int, str]) -> tuple[pa.Table, Index]:
        """The fields of lines that have as many as there are columns, and the lines' positions.

        Some writers put the line's end behind it, as into a file. We do not: it is dropped only where it is no text.
        """
        regular = text.str.contains(self._regular())
        if not regular.all():
            lines = pl.DataFrame({"text": text, "ended": text.str.replace(r"\r?\n\z", ""), "regular": regular})
            text = lines.select(pl.when("regular").then("text").otherwise("ended")).to_series()
            regular = text.str.contains(self._regular())
        good = regular.to_numpy()
        for i in np.flatnonzero(~good).tolist():
            bad[int(places[i])] = self._reason(text[i])
        joined = "\n".join([*text.filter(regular), ""]).encode()
        names = [f"{i}" for i in range(len(self.schema))]
        if not good.any():
            return pa.table({n: pa.array([], pa.string()) for n in names}), places[good]
        table = self.parsed(joined, names)
        assert table.num_rows == int(good.sum())  # `_regular` is what the parser takes
        return table, places[good]

    def parsed(self, text: bytes, names: Sequence[str]) -> pa.Table:
        """Returns the fields of lines as texts; an empty line is a row of one field that is null.

        Args:
            text: Lines.
            names: The columns' names.

        Raises:
            ArrowInvalid: lines with another number of fields, or whose quotes are not closed.
        """
        sink = pa.BufferOutputStream()  # the memory is Arrow's: its threads must not touch an object of Python
        sink.write(text)
        return pa_csv.read_csv(pa.BufferReader(sink.getvalue()), *self._options(names, len(text) + 1))

    def _options(
        self, names: Sequence[str], block: int
    ) -> tuple[pa_csv.ReadOptions, pa_csv.ParseOptions, pa_csv.ConvertOptions]:
        return (
            pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=block),
            pa_csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote or False,
                double_quote=self.quote is not None and self.escape is None,
                escape_char=self.escape or False,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[self.null_literal or ""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _regular(self) -> str:
        """A line of the right number of fields that the parser takes as one."""
        delimiter, quote, escape = (re.escape(c or "") for c in (self.delimiter, self.quote, self.escape))
        escaped = f"{escape}." if self.escape else r"\A\z."  # the latter matches nothing
        plain = f"(?:[^{delimiter}{quote}{escape}\\r\\n]|{escaped})*"
        field = plain
        if self.quote:
            inside = f"{escaped}|[^{quote}{escape}]" + ("" if self.escape else f"|{quote}{quote}")
            field = f"(?:{plain}|{quote}(?:{inside})*{quote})"
        return f"(?s)\\A{field}(?:{delimiter}{field}){{{len(self.schema) - 1}}}\\z"

    def _reason(self, line: str) -> str:
        if self.quote and line.count(self.quote) % 2:
            return f"a quote {self.quote} is not closed"
        if ("\n" in line or "\r" in line) and not self.quote:
            return "an end of line inside a message"
        return f"not {len(self.schema)} fields with {self.delimiter!r} between them, quoted as they should be"


def _texts(messages: Sequence[bytes], places: Index, bad: dict[int, str]) -> tuple[pl.Series, Index]:
    try:
        return pl.Series(messages, dtype=pl.Binary).cast(pl.String), places
    except pl.exceptions.ComputeError:
        good = np.ones(len(messages), bool)
        texts = []
        for i, message in enumerate(messages):
            try:
                texts.append(message.decode())
            except UnicodeDecodeError as error:
                good[i] = False
                bad[int(places[i])] = f"not UTF-8: {error.reason} at byte {error.start}"
        return pl.Series(texts, dtype=pl.String), places[good]


def _words(array: pa.Array) -> pl.Series:
    """Scalars as text."""
    series, kind = pl.Series(pl.from_arrow(array)), array.type
    if pa.types.is_timestamp(kind):
        return series.dt.strftime("%Y-%m-%d %H:%M:%S%.6f" + ("Z" if kind.tz else ""))
    if pa.types.is_date(kind):
        return series.dt.strftime("%Y-%m-%d")
    if pa.types.is_binary(kind):
        return series.bin.encode("base64")
    if pa.types.is_floating(kind):
        return series.cast(pl.String).replace({"inf": "Infinity", "-inf": "-Infinity"})
    return series if pa.types.is_string(kind) else series.cast(pl.String)


def _typed(
    array: pa.Array, field: pa.Field, line: Callable[[int], int], bad: dict[int, str], style: CsvFormat
) -> pa.Array:
    """Parses a column of texts as its type; returns null for other texts, and which those are."""
    kind = field.type
    if pa.types.is_string(kind):
        return array
    if style.null_literal is not None and not pa.types.is_nested(kind):
        array = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return _nested(array, field, line, bad, style)
    return _scalars(array, kind, Place(field.name, style.rules), line, bad)


def _nested(
    array: pa.Array, field: pa.Field, line: Callable[[int], int], bad: dict[int, str], style: CsvFormat
) -> pa.Array:
    kind, null = field.type, style.null_literal or ""
    parts = pc.split_pattern(array, style.element_delimiter)
    if pa.types.is_list(kind):
        parts = pc.if_else(pc.equal(array, ""), pa.scalar([], parts.type), parts)
    lengths = pc.fill_null(pc.list_value_length(parts), 0).to_numpy()
    owner = np.repeat(np.arange(len(array)), lengths)
    flat = parts.flatten()
    flat = pc.if_else(pc.equal(flat, null), pa.scalar(None, pa.string()), flat)
    if pa.types.is_list(kind):
        items = _typed(flat, pa.field(field.name, kind.value_type), lambda i: line(int(owner[i])), bad, style)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        mask = pa.array(array.is_null())
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=mask)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    wrong = valid & (lengths != len(kind))
    for i in np.flatnonzero(wrong).tolist():
        bad.setdefault(line(i), f"{field.name}: {lengths[i]} elements, and the STRUCT has {len(kind)}")
    right = np.flatnonzero(valid & ~wrong)
    at = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    children = []
    for number, child in enumerate(kind):
        where = np.full(len(array), -1)
        where[right] = at[right] + number
        texts = flat.take(pa.array(where, mask=where < 0))
        children.append(_typed(texts, pa.field(field.name, child.type), line, bad, style))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(~valid))


def _scalars(
    array: pa.Array, kind: pa.DataType, place: Place, line: Callable[[int], int], bad: dict[int, str]
) -> pa.Array:
    try:
        if pa.types.is_binary(kind):
            decoded = pl.Series(pl.from_arrow(array)).str.decode("base64")
            return decoded.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)
        return floats_of_texts(array, kind) if pa.types.is_floating(kind) else array.cast(kind)
    except (pa.ArrowInvalid, pl.exceptions.PolarsError):
        if len(array) > 32:
            middle = len(array) // 2
            halves = [
                _scalars(array[:middle], kind, place, line, bad),
                _scalars(array[middle:], kind, place, lambda i: line(i + middle), bad),
            ]
            return pa.concat_arrays(halves)
    values = []
    for i, text in enumerate(array.to_pylist()):
        try:
            values.append(column_value(text, kind, place))
        except ValueError as error:
            bad.setdefault(line(i), str(error))
            values.append(None)
    return pa.array(values, kind)


def check_csv_type(kind: pa.DataType) -> str | None:
    """Names a type that csv cannot hold; None if it can."""
    if pa.types.is_map(kind):
        return "a MAP, which csv cannot hold"
    inner = [kind.value_type] if pa.types.is_list(kind) else [f.type for f in kind] if pa.types.is_struct(kind) else []
    if any(pa.types.is_nested(t) for t in inner):
        return "nested twice, and csv has one delimiter of elements"
    return None

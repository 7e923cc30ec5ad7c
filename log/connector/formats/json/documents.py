"""Parses messages that are JSON objects to a table of their members.

A batch goes through Arrow's parser in one piece. What it does not take is halved until the messages that it does not
take are alone, and these are read one by one by the rules of `json_values`, which take all that the parser takes, and
say what is wrong. So a bad message costs itself and spoils no other, and a batch without one costs one pass. Maps are
objects in JSON, for which Arrow's parser has no type: it gets them as arrays of entries (`json_maps`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from log.connector.formats.format import Index
from log.connector.formats.json.maps import has_map, maps_as_entries
from log.connector.formats.json.values import column_value, load, shown
from log.json_rows import leaves

__all__ = ["Documents", "parse_documents"]

_ALONE = 32
"""The number of messages that are read one by one rather than halved again."""
_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Documents:
    """Parsed messages.

    Args:
        members: A row for each document.
        index: The position of its message; a message that is an array of objects gives several documents.
        malformed: Position and reason of the others.
    """

    members: pa.Table
    index: Index
    malformed: Mapping[int, str]


def parse_documents(
    values: Sequence[bytes], schema: pa.Schema, *, textual: Collection[str] = (), arrays: bool = False
) -> Documents:
    """Parses the members of messages; those that the schema lacks are skipped, absent ones are null.

    Args:
        values: Messages.
        schema: The members wanted. Nullability is not looked at.
        textual: Members under which all scalars are likely to be strings, whatever their types.
        arrays: A message may be an array of such objects.
    """
    text = _texts(values).str.strip_chars(" \t\r\n")
    # Between such texts a newline can stand nowhere inside a document, see `_parse`.
    regular = text.str.starts_with("{") & text.str.ends_with("}")
    forms = [frozenset(textual), frozenset[str]()] if textual else [frozenset[str]()]
    found = _Found(schema, arrays)
    if len(places := regular.arg_true().to_numpy().astype(np.int64)):
        _halve(text.gather(places) if not regular.all() else text, places, forms, found, values)
    for place in (~regular).arg_true().to_list():
        found.read(place, values[place])
    return found.documents()


def _texts(values: Sequence[bytes]) -> pl.Series:
    """Converts messages to texts; one that is not UTF-8 becomes empty here, and is reported when it is read alone."""
    try:
        return pl.Series("v", values, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series("v", [v if _is_utf8(v) else b"" for v in values], dtype=pl.Binary).cast(pl.String)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Found:
    """The messages that were parsed so far."""

    def __init__(self, schema: pa.Schema, arrays: bool) -> None:
        self.schema = pa.schema([pa.field(f.name, f.type) for f in schema])
        self._arrays = arrays
        self._tables: list[pa.Table] = []
        self._index: list[Index] = []
        self._alone: list[Any] = []
        self._alone_index: list[int] = []
        self._malformed: dict[int, str] = {}

    def add(self, table: pa.Table, places: Index) -> None:
        self._tables.append(table)
        self._index.append(places)

    def read(self, place: int, value: bytes) -> None:
        """Reads one message by itself."""
        try:
            rows = list(self._rows(load(value)))
        except ValueError as error:
            self._malformed[place] = str(error)
            return
        except RecursionError:
            self._malformed[place] = "not JSON: nested too deeply"
            return
        self._alone += rows
        self._alone_index += [place] * len(rows)

    def _rows(self, document: Any) -> Iterator[dict[str, Any]]:
        documents = document if self._arrays and isinstance(document, list) else [document]
        for one in documents:
            if not isinstance(one, dict):
                raise ValueError(f"not a JSON object but {shown(one)}")
            yield {f.name: column_value(one.get(f.name), f.type, f.name) for f in self.schema}

    def documents(self) -> Documents:
        columns = [pa.array([row[f.name] for row in self._alone], f.type) for f in self.schema]
        tables = [*self._tables, pa.Table.from_arrays(columns, schema=self.schema)]
        index = np.concatenate([*self._index, np.array(self._alone_index, np.int64)])
        members = pa.concat_tables(tables).combine_chunks()
        if len(self._index) + bool(self._alone) > 1:
            order = np.argsort(index, kind="stable")
            members, index = members.take(pa.array(order)), index[order]
        return Documents(members, index, self._malformed)


def _halve(
    text: pl.Series, places: Index, forms: Sequence[frozenset[str]], found: _Found, values: Sequence[bytes]
) -> None:
    table = _parsed(text, forms, found.schema)
    if table is not None:
        found.add(table, places)
        return
    if len(text) <= _ALONE or _all_strange(text, forms, found.schema):
        for place in places.tolist():
            found.read(place, values[place])
        return
    middle = len(text) // 2
    _halve(text[:middle], places[:middle], forms, found, values)
    _halve(text[middle:], places[middle:], forms, found, values)


def _all_strange(text: pl.Series, forms: Sequence[frozenset[str]], schema: pa.Schema) -> bool:
    """Returns whether samples show that most messages fail to parse, so that halving would not help."""
    step = len(text) // _SAMPLES
    if step < 2 * _ALONE:
        return False
    samples = (text.slice(i * step, _ALONE) for i in range(_SAMPLES))
    return all(_parsed(sample, forms, schema) is None for sample in samples)


def _parsed(text: pl.Series, forms: Sequence[frozenset[str]], schema: pa.Schema) -> pa.Table | None:
    for form in forms:
        try:
            return _parse(text, schema, form)
        except (pa.ArrowInvalid, pl.exceptions.PolarsError):
            continue
    return None


def _parse(text: pl.Series, schema: pa.Schema, form: frozenset[str]) -> pa.Table:
    # A string may not hold a newline, and no document goes on with "{" after a "}": so the border of two texts is one
    # of two documents, and as many rows as texts means one row each.
    joined = text.str.join("\n").cast(pl.Binary).to_arrow(compat_level=pl.CompatLevel.oldest())
    data = joined.buffers()[2]
    if any(has_map(f.type) for f in schema):
        data = maps_as_entries(np.frombuffer(data, np.uint8), schema)
    wanted = pa.schema([pa.field(f.name, _parsed_type(f.type, f.name in form)) for f in schema])
    table = pa_json.read_json(
        pa.BufferReader(data),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(text):
        raise pa.ArrowInvalid(f"{len(text)} texts gave {table.num_rows} documents")
    arrays = [_typed(table[f.name].combine_chunks(), f.type) for f in schema]
    parsed = pa.Table.from_arrays(arrays, schema=schema)
    for column in parsed.columns:
        for leaf in leaves(column):
            if pa.types.is_decimal(leaf.type):
                leaf.validate(full=True)  # the parser lets digits pass that the precision has no room for
            elif pa.types.is_floating(leaf.type) and pc.any(pc.is_inf(leaf)).as_py():
                raise pa.ArrowInvalid("a number may be out of range: the parser takes it for an infinite one")
    return parsed


def _parsed_type(kind: pa.DataType, textual: bool) -> pa.DataType:
    """Returns the type as which Arrow's parser reads a column."""
    if pa.types.is_list(kind):
        return pa.list_(_parsed_type(kind.value_type, textual))
    if pa.types.is_map(kind):
        item = _parsed_type(kind.item_type, textual)
        return pa.list_(pa.struct([("key", kind.key_type), ("value", item)]))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _parsed_type(f.type, textual)) for f in kind])
    if pa.types.is_timestamp(kind) and kind.unit == "us" and not textual:
        return kind
    if textual or pa.types.is_binary(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    return kind


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [_typed(array.field(i), f.type) for i, f in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, array.offset, children)
    if pa.types.is_list(kind):
        children = [_typed(array.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)
    if pa.types.is_map(kind):
        return _map(array, kind)
    if pa.types.is_binary(kind):
        decoded = pl.Series(pl.from_arrow(array)).str.decode("base64")
        return decoded.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)
    return array.cast(kind)


def _map(entries: pa.ListArray, kind: pa.MapType) -> pa.Array:
    keys, items = entries.values.field(0), _typed(entries.values.field(1), kind.item_type)
    owners = np.repeat(np.arange(len(entries)), np.diff(entries.offsets.to_numpy()))
    named = pa.table({"owner": owners, "key": keys.slice(entries.offsets[0].as_py(), len(owners))})
    if named.group_by(["owner", "key"]).aggregate([]).num_rows < len(owners):
        raise pa.ArrowInvalid("a key comes twice in one object")
    inner = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(entries), entries.buffers()[:2], entries.null_count, entries.offset, [inner])

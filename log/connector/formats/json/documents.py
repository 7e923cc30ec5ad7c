"""Parses messages that are JSON objects to a table of their members.

A batch goes through Arrow's parser in one piece. What it does not take is halved until the messages that it does not
take are alone, and these are read one by one by the rules of `json_values`, which take all that the parser takes, and
say what is wrong. So a bad message costs itself and spoils no other, and a batch without one costs one pass.

Writers spell some values in ways for which Arrow's parser has no type, so a batch is tried in several forms (`_Form`):
maps are objects or arrays of entries (`json_maps`), and floating numbers may be strings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from filestore.lazily import pl
from filestore.model.types import contains_type
from filestore.rows.numbers import floats_of_texts
from log.connector.formats.format import Index
from log.connector.formats.json.maps import has_map, maps_as_entries
from log.connector.formats.json.values import TOPICS, Place, Rules, check_members, column_value, load, shown
from log.json_rows import floats_are_text, leaves

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


@dataclass(frozen=True, slots=True)
class _Form:
    """A form in which a batch is tried.

    Args:
        textual: Members under which all scalars are strings.
        floats: Floating numbers are strings.
        entries: Maps are arrays of entries; otherwise they are objects.
    """

    textual: frozenset[str] = frozenset()
    floats: bool = False
    entries: bool = False

    def has_numbers(self, name: str) -> bool:
        """Returns whether the parser reads floating numbers under a member, and not strings."""
        return not self.floats and name not in self.textual

    def type_of(self, field: pa.Field, rules: Rules) -> pa.DataType:
        """Returns the type as which Arrow's parser reads a column."""
        return self._parsed(field.type, field.name in self.textual, rules)

    def _parsed(self, kind: pa.DataType, textual: bool, rules: Rules) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(self._parsed(kind.value_type, textual, rules))
        if pa.types.is_map(kind):
            key = self._parsed(kind.key_type, textual, rules) if self.entries else kind.key_type
            return pa.list_(pa.struct([("key", key), ("value", self._parsed(kind.item_type, textual, rules))]))
        if pa.types.is_struct(kind):
            return pa.struct([(f.name, self._parsed(f.type, textual, rules)) for f in kind])
        if pa.types.is_timestamp(kind):  # the parser takes either with and without an offset
            return kind if kind.unit == "us" and rules.zones and not textual else pa.string()
        if textual or pa.types.is_binary(kind) or pa.types.is_date(kind):
            return pa.string()
        return pa.string() if self.floats and pa.types.is_floating(kind) else kind


def parse_documents(
    values: Sequence[bytes],
    schema: pa.Schema,
    *,
    textual: Collection[str] = (),
    arrays: bool = False,
    rules: Rules = TOPICS,
) -> Documents:
    """Parses the members of messages; absent ones are null.

    Args:
        values: Messages.
        schema: The members wanted. Nullability is not looked at.
        textual: Members under which all scalars are likely to be strings, whatever their types.
        arrays: A message may be an array of such objects.
        rules: What stands for a value, and whether members that the schema lacks are skipped.
    """
    text = _texts(values).str.strip_chars(" \t\r\n")
    # Between such texts a newline can stand nowhere inside a document, see `_parse`.
    regular = text.str.starts_with("{") & text.str.ends_with("}")
    found = _Found(schema, arrays, rules)
    for chosen, forms in _by_form(text, regular, schema, frozenset(textual), rules):
        if len(places := chosen.arg_true().to_numpy().astype(np.int64)):
            _halve(text.gather(places) if not chosen.all() else text, places, forms, found, values)
    for place in (~regular).arg_true().to_list():
        found.read(place, values[place])
    return found.documents()


def _by_form(
    text: pl.Series, regular: pl.Series, schema: pa.Schema, textual: frozenset[str], rules: Rules
) -> Iterator[tuple[pl.Series, list[_Form]]]:
    """Yields the messages that are tried in the same forms, and these forms."""
    maps = _maps(schema, rules)
    likely = [_Form(textual, entries=entries) for entries in maps if textual]
    plain = [_Form(entries=entries) for entries in maps]
    if any(contains_type(f.type, pa.types.is_floating) for f in schema):
        named = regular & floats_are_text(text)
        yield named, [*likely, *(_Form(floats=True, entries=entries) for entries in maps), *plain]
        regular = regular & ~named
    yield regular, likely + plain


def _maps(schema: pa.Schema, rules: Rules) -> list[bool]:
    """Returns whether maps may be arrays of entries, and objects: members of objects have names, which are strings."""
    maps = [f.type for f in schema if has_map(f.type)]
    named = all(not contains_type(kind, _has_other_keys) for kind in maps)
    return [True, False][: 1 + named] if maps and rules.entries else [False]


def _has_other_keys(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind) and not pa.types.is_string(kind.key_type))


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

    def __init__(self, schema: pa.Schema, arrays: bool, rules: Rules) -> None:
        self.schema = pa.schema([pa.field(f.name, f.type) for f in schema])
        self.rules = rules
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
            check_members(one, self.schema.names, Place("", self.rules))
            yield {f.name: column_value(one.get(f.name), f.type, Place(f.name, self.rules)) for f in self.schema}

    def documents(self) -> Documents:
        columns = [pa.array([row[f.name] for row in self._alone], f.type) for f in self.schema]
        tables = [*self._tables, pa.Table.from_arrays(columns, schema=self.schema)]
        index = np.concatenate([*self._index, np.array(self._alone_index, np.int64)])
        members = pa.concat_tables(tables).combine_chunks()
        if len(self._index) + bool(self._alone) > 1:
            order = np.argsort(index, kind="stable")
            members, index = members.take(pa.array(order)), index[order]
        return Documents(members, index, self._malformed)


def _halve(text: pl.Series, places: Index, forms: Sequence[_Form], found: _Found, values: Sequence[bytes]) -> None:
    table = _parsed(text, forms, found)
    if table is not None:
        found.add(table, places)
        return
    if len(text) <= _ALONE or _all_strange(text, forms, found):
        for place in places.tolist():
            found.read(place, values[place])
        return
    middle = len(text) // 2
    _halve(text[:middle], places[:middle], forms, found, values)
    _halve(text[middle:], places[middle:], forms, found, values)


def _all_strange(text: pl.Series, forms: Sequence[_Form], found: _Found) -> bool:
    """Returns whether samples show that most messages fail to parse, so that halving would not help."""
    step = len(text) // _SAMPLES
    if step < 2 * _ALONE:
        return False
    samples = (text.slice(i * step, _ALONE) for i in range(_SAMPLES))
    return all(_parsed(sample, forms, found) is None for sample in samples)


def _parsed(text: pl.Series, forms: Sequence[_Form], found: _Found) -> pa.Table | None:
    for form in forms:
        try:
            return _parse(text, found.schema, form, found.rules)
        except (pa.ArrowInvalid, pl.exceptions.PolarsError):
            continue
    return None


def _parse(text: pl.Series, schema: pa.Schema, form: _Form, rules: Rules) -> pa.Table:
    # A string may not hold a newline, and no document goes on with "{" after a "}": so the border of two texts is one
    # of two documents, and as many rows as texts means one row each.
    joined = text.str.join("\n").cast(pl.Binary).to_arrow(compat_level=pl.CompatLevel.oldest())
    data = joined.buffers()[2]
    if not form.entries and any(has_map(f.type) for f in schema):
        data = maps_as_entries(np.frombuffer(data, np.uint8), schema)
    wanted = pa.schema([pa.field(f.name, form.type_of(f, rules)) for f in schema])
    unknown = "ignore" if rules.unknown else "error"
    table = pa_json.read_json(
        pa.BufferReader(data),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior=unknown),
    )
    if table.num_rows != len(text):
        raise pa.ArrowInvalid(f"{len(text)} texts gave {table.num_rows} documents")
    arrays = [_typed(table[f.name].combine_chunks(), f.type, form) for f in schema]
    parsed = pa.Table.from_arrays(arrays, schema=schema)
    for name, column in zip(schema.names, parsed.columns, strict=True):
        for leaf in leaves(column):
            if pa.types.is_decimal(leaf.type):
                leaf.validate(full=True)  # the parser lets digits pass that the precision has no room for
            elif form.has_numbers(name) and pa.types.is_floating(leaf.type) and pc.any(pc.is_inf(leaf)).as_py():
                raise pa.ArrowInvalid("a number is out of range: the parser takes it for an infinite one")
    return parsed


def _typed(array: pa.Array, kind: pa.DataType, form: _Form) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [_typed(array.field(i), f.type, form) for i, f in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, array.offset, children)
    if pa.types.is_list(kind):
        children = [_typed(array.values, kind.value_type, form)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, children)
    if pa.types.is_map(kind):
        return _map(array, kind, form)
    if pa.types.is_binary(kind):
        decoded = pl.Series(pl.from_arrow(array)).str.decode("base64")
        return decoded.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)
    return floats_of_texts(array, kind) if pa.types.is_floating(kind) else array.cast(kind)


def _map(entries: pa.ListArray, kind: pa.MapType, form: _Form) -> pa.Array:
    keys, items = entries.values.field(0), _typed(entries.values.field(1), kind.item_type, form)
    if form.entries:
        keys = _typed(keys, kind.key_type, form)
        if keys.null_count or entries.values.null_count:
            raise pa.ArrowInvalid("a key of a MAP is null")
    else:
        owners = np.repeat(np.arange(len(entries)), np.diff(entries.offsets.to_numpy()))
        named = pa.table({"owner": owners, "key": keys.slice(entries.offsets[0].as_py(), len(owners))})
        if named.group_by(["owner", "key"]).aggregate([]).num_rows < len(owners):
            raise pa.ArrowInvalid("a key comes twice in one object")
    inner = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(entries), entries.buffers()[:2], entries.null_count, entries.offset, [inner])

"""``canal-json``: changes as Alibaba Canal writes them from MySQL's binlog (FORMATS.md).

| type | data | old | rows for each element of data |
|---|---|---|---|
| INSERT | rows | | ``+I`` |
| UPDATE | rows after | for each row the columns that changed, as they were | ``-U``, ``+U`` |
| DELETE | rows | | ``-D`` |
| other | | | none: a statement (DDL, QUERY) or a border of a transaction |

A column of ``old`` that is ``null`` was null; one that is absent had its present value. It writes what Flink writes:
``+I`` and ``+U`` as INSERT, ``-U`` and ``-D`` as DELETE, one message a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.model.rowkind import RowKind
from log.connector.formats.format import (
    MILLISECONDS,
    Decoded,
    Index,
    collected,
    metadata_fields,
    nullable,
    split_kinds,
    split_tombstones,
)
from log.connector.formats.json.documents import parse_documents
from log.connector.formats.json.texts import JsonStyle, to_texts
from log.connector.formats.json.values import load

__all__ = ["METADATA", "CanalJsonFormat"]

METADATA: Mapping[str, pa.DataType] = {
    "database": pa.string(),
    "table": pa.string(),
    "sql-type": pa.map_(pa.string(), pa.int32()),
    "pk-names": pa.list_(pa.string()),
    "ingestion-timestamp": MILLISECONDS,
}
"""Keys and types, as Flink documents them."""

_MEMBERS = {
    "database": pa.field("database", pa.string()),
    "table": pa.field("table", pa.string()),
    "sql-type": pa.field("sqlType", METADATA["sql-type"]),
    "pk-names": pa.field("pkNames", METADATA["pk-names"]),
    "ingestion-timestamp": pa.field("ts", pa.int64()),
}
_KINDS = {"INSERT": RowKind.INSERT, "UPDATE": RowKind.UPDATE_AFTER, "DELETE": RowKind.DELETE}
_SILENT = (
    *("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "QUERY", "GTID"),
    *("XACOMMIT", "XAROLLBACK", "MHEARTBEAT"),
)
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CanalJsonFormat:
    """Changes as Canal writes them.

    Args:
        schema: The columns.
        style: How values are written.
        database_include: Messages whose database does not match this regular expression, whole, have no rows.
        table_include: The same for their table.
    """

    schema: pa.Schema
    style: JsonStyle
    database_include: str | None = None
    table_include: str | None = None

    changelog: ClassVar[bool] = True
    metadata: ClassVar[Mapping[str, pa.DataType]] = METADATA

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes each row as a message: ``{"data":[{…}],"type":"INSERT"}`` or ``DELETE``."""
        columns, kinds = split_kinds(rows, self.schema, changelog=True)
        adds = pl.col("kind").is_in([str(k) for k in RowKind if k.adds])
        end = pl.when(adds).then(pl.lit('],"type":"INSERT"}')).otherwise(pl.lit('],"type":"DELETE"}'))
        frame = pl.DataFrame({"kind": pl.Series(pl.from_arrow(kinds)), "row": to_texts(columns, self.style)})
        return [*frame.select(pl.concat_str(pl.lit('{"data":['), "row", end)).to_series().cast(pl.Binary).to_list()]

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes the changes of messages, in their order."""
        wanted = metadata_fields(METADATA, metadata)
        messages, places, tombstones = split_tombstones(values)
        bad: dict[int, str] = {}
        if self.database_include is not None or self.table_include is not None:
            chosen = self._included(messages, bad)
            messages, places = [messages[i] for i in chosen.tolist()], _renumber(places, chosen, bad)
        reasons, bad = bad, {}
        row = pa.struct(list(nullable(self.schema)))
        images = [pa.field("data", pa.list_(row)), pa.field("old", pa.list_(row))]
        head = [pa.field("type", pa.string()), pa.field("isDdl", pa.bool_())]
        documents = pa.schema([*images, *head, *(_MEMBERS[key] for key in metadata)])
        found = parse_documents(messages, documents, textual=("data", "old"))
        bad |= found.malformed
        members = found.members.combine_chunks()
        is_kind = _kinds_of(members, found.index, bad)
        parent, befores, afters, kinds = _rows(members, is_kind, found.index, messages, bad)
        minus = np.flatnonzero(kinds == str(RowKind.UPDATE_AFTER))
        order = np.argsort(np.concatenate([np.arange(len(parent)) * 2 + 1, minus * 2]), kind="stable")
        columns = [pa.concat_arrays([a, b]).take(pa.array(order)) for a, b in zip(afters, befores, strict=True)]
        which = np.concatenate([parent, parent[minus]])[order]
        extra = [members[_MEMBERS[f.name].name].combine_chunks().cast(f.type).take(pa.array(which)) for f in wanted]
        table = pa.Table.from_arrays([*columns, *extra], schema=pa.schema([*nullable(self.schema), *wanted]))
        every = np.concatenate([kinds, np.repeat(str(RowKind.UPDATE_BEFORE), len(minus))])[order]
        reasons |= {int(places[i]): reason for i, reason in bad.items()}
        index = places[found.index[which]]
        return collected(table, pa.array(every, pa.string()), self.schema, index, tombstones, reasons)

    def _included(self, messages: Sequence[bytes], bad: dict[int, str]) -> Index:
        """The positions of messages of the databases and tables that are read; others may have any columns."""
        found = parse_documents(messages, pa.schema([_MEMBERS["database"], _MEMBERS["table"]]))
        bad |= found.malformed
        keep = np.ones(len(found.index), bool)
        for name, pattern in (("database", self.database_include), ("table", self.table_include)):
            if pattern is not None:
                matching = [n for n in pc.unique(found.members[name]).to_pylist() if n and re.fullmatch(pattern, n)]
                mask = pc.is_in(found.members[name], pa.array(matching, pa.string()))
                keep &= pc.fill_null(mask, False).combine_chunks().to_numpy(zero_copy_only=False)
        return found.index[keep]


def _renumber(places: Index, chosen: Index, bad: dict[int, str]) -> Index:
    """Returns the positions of chosen messages, and replaces indices of malformed ones by positions."""
    moved = {int(places[i]): reason for i, reason in bad.items()}
    bad.clear()
    bad.update(moved)
    return places[chosen]


def _kinds_of(members: pa.Table, index: Index, bad: dict[int, str]) -> Mapping[str, _Mask]:
    """Finds the documents of each type of change; those of unknown types and changes without rows become malformed."""
    types = members["type"].combine_chunks()
    ddl = pc.fill_null(members["isDdl"], False).combine_chunks().to_numpy(zero_copy_only=False)
    has = {n: members[n].combine_chunks().is_valid().to_numpy(zero_copy_only=False) for n in ("data", "old")}
    masks = {
        name: pc.fill_null(pc.equal(types, name), False).to_numpy(zero_copy_only=False) & ~ddl
        for name in (*_KINDS, *_SILENT)
    }
    known = np.logical_or.reduce([ddl, *masks.values()])
    for i in np.flatnonzero(~known).tolist():
        bad.setdefault(int(index[i]), f"a Canal message has the unknown type {types[i].as_py()!r}")
    for name in _KINDS:
        for part in ("data", "old") if name == "UPDATE" else ("data",):
            for i in np.flatnonzero(masks[name] & ~has[part]).tolist():
                bad.setdefault(int(index[i]), f"a Canal message lacks {part!r} with type {name}")
        masks[name] &= has["data"] & (has["old"] | (name != "UPDATE"))
    return masks


def _rows(
    members: pa.Table, masks: Mapping[str, _Mask], index: Index, messages: Sequence[bytes], bad: dict[int, str]
) -> tuple[Index, list[pa.Array], list[pa.Array], npt.NDArray[np.str_]]:
    """Returns for each changed row its document, its columns before (of updates) and after the change, and its kind."""
    data, old = (members[n].combine_chunks() for n in ("data", "old"))
    lengths, old_lengths = (pc.fill_null(pc.list_value_length(a), 0).to_numpy() for a in (data, old))
    uneven = masks["UPDATE"] & (lengths != old_lengths)
    for i in np.flatnonzero(uneven).tolist():
        bad.setdefault(int(index[i]), f"a Canal message has {lengths[i]} rows in 'data' and {old_lengths[i]} in 'old'")
    taken = np.logical_or.reduce([masks[name] for name in _KINDS]) & ~uneven
    updates = masks["UPDATE"] & ~uneven
    documents = np.flatnonzero(taken)
    parent = np.repeat(documents, lengths[documents])
    kinds = np.empty(len(taken), dtype="U2")
    for name, kind in _KINDS.items():
        kinds[masks[name]] = str(kind)
    afters = data.take(pa.array(documents)).flatten()
    updated = np.flatnonzero(updates[parent])
    after = afters.take(pa.array(updated))
    before = old.take(pa.array(np.flatnonzero(updates))).flatten()
    befores = _before(before, after, parent[updated], index, messages)
    return parent, befores, afters.flatten(), kinds[parent]


def _before(
    before: pa.StructArray, after: pa.StructArray, parent: Index, index: Index, messages: Sequence[bytes]
) -> list[pa.Array]:
    """Returns the columns before the change: from ``old`` if they are named there, else as they are after it."""
    names = before.type.names
    named = _nulls_named(before, parent, index, messages)
    columns = []
    for name, was, now in zip(names, before.flatten(), after.flatten(), strict=True):
        changed = np.asarray(was.is_valid().to_numpy(zero_copy_only=False)) | named[name]
        from_both = np.where(changed, np.arange(len(was)), np.arange(len(was)) + len(was))
        columns.append(pa.concat_arrays([was, now]).take(pa.array(from_both)))
    return columns


def _nulls_named(before: pa.StructArray, parent: Index, index: Index, messages: Sequence[bytes]) -> Mapping[str, _Mask]:
    """Finds by column the rows whose ``old`` names it with null. It parses only messages with such a text again."""
    named = {name: np.zeros(len(before), bool) for name in before.type.names}
    documents, firsts = np.unique(parent, return_index=True)
    texts = pl.Series([messages[i] for i in index[documents].tolist()], dtype=pl.Binary)
    frame = pl.DataFrame({"text": texts.cast(pl.String)})
    # `"old":null` itself has no rows, and other members' nulls are before or behind: a look too many does no harm.
    suspects = frame.select(pl.col("text").str.contains(r":\s*null")).to_series().arg_true()
    for suspect in suspects.to_list():
        for row, old in enumerate(load(messages[int(index[documents[suspect]])])["old"]):
            for name in named.keys() & (old or {}).keys():
                named[name][firsts[suspect] + row] |= old[name] is None
    return named

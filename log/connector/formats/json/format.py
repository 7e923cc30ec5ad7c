"""``json``: each message is an object of the columns (FORMATS.md). Insert-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from filestore.lazily import pl
from filestore.model.types import contains_type
from log.connector.formats.format import Decoded, inserts, metadata_fields, split_kinds, split_tombstones
from log.connector.formats.json.documents import parse_documents
from log.connector.formats.json.texts import JsonStyle, to_texts
from log.connector.formats.json.values import load

__all__ = ["JsonFormat", "check_json_type"]


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """Encodes and decodes rows as JSON objects.

    Args:
        schema: The columns.
        style: How values are written.
        fail_on_missing_field: A message that lacks a column's member is malformed; otherwise the column is null.
    """

    schema: pa.Schema
    style: JsonStyle
    fail_on_missing_field: bool = False

    changelog: ClassVar[bool] = False
    metadata: ClassVar[Mapping[str, pa.DataType]] = {}

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes each row as an object."""
        columns, _ = split_kinds(rows, self.schema, changelog=False)
        return [*to_texts(columns, self.style).cast(pl.Binary).to_list()]

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes objects as rows; a message may also be an array of objects."""
        metadata_fields(self.metadata, metadata)
        messages, places, tombstones = split_tombstones(values)
        found = parse_documents(messages, self.schema, arrays=True)
        bad = {int(places[i]): reason for i, reason in found.malformed.items()}
        if self.fail_on_missing_field:
            bad |= self._lacking(messages, found.members, found.index, places)
        return inserts(found.members, self.schema, places[found.index], tombstones, bad)

    def _lacking(
        self, messages: Sequence[bytes], rows: pa.Table, index: np.ndarray, places: np.ndarray
    ) -> dict[int, str]:
        """Finds messages in which a member is absent: only those that gave a null can be."""
        empty = np.zeros(len(index), bool)
        for column in rows.columns:
            if column.null_count:
                empty |= column.is_null().combine_chunks().to_numpy(zero_copy_only=False)
        bad = {}
        for i in np.unique(index[empty]).tolist():
            document = load(messages[i])
            for one in document if isinstance(document, list) else [document]:
                if missing := [n for n in self.schema.names if n not in one]:
                    bad[int(places[i])] = f"member {missing[0]!r} is missing"
        return bad


def check_json_type(kind: pa.DataType) -> str | None:
    """Names what a type has that JSON of these formats cannot hold; None if nothing."""
    if contains_type(kind, lambda part: pa.types.is_map(part) and not pa.types.is_string(part.key_type)):
        return "a MAP whose keys are not STRING: members of JSON objects have names"
    return None

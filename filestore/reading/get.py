"""Reads the rows of given keys in one version; it finds keys in the same way as a write does.

A key determines its partition and bucket. Then the files with the most live rows are searched first, until all keys are
found, since a key has at most one live row. It takes the memory of the keys, of the found rows, and of `FileLookup`, or
of several of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lookup.key_match import HASH
from filestore.lookup.locate import locate
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot, Tombstones
from filestore.reading.key_filters import RequestedKeys
from filestore.reading.overlay import PendingSlot, merged_keys, slot_at
from filestore.rows.casting import cast_rows
from filestore.rows.frames import arrow_table, frame_of
from filestore.rows.keys import changes
from filestore.sorting.chunks import by_slot
from filestore.sorting.order import sort_rows
from filestore.threads import in_threads

__all__ = ["NUMBER", "FoundRows", "find_rows", "get_rows", "rows_of_slot"]

Positions = npt.NDArray[np.int64]

NUMBER = "_number"
"""The number of a key that is looked up."""

_FEW_KEYS = 1000  # of more keys a slot may have so many that whole row groups are read, which take memory
_TOGETHER = 8


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """The rows of keys that were looked up.

    Attributes:
        rows: The rows, each once, in the order in which they were found.
        keys: The positions of the keys that have a row; of a repeated key all its positions.
        places: For each of `keys` the position of its row in `rows`.
    """

    rows: pa.Table
    keys: Positions
    places: Positions

    def in_order(self) -> pa.Table:
        """Returns the rows in the order of the first positions of their keys."""
        if not self.rows.num_columns:  # Arrow's `take` would forget their number
            return self.rows
        first = np.empty(self.rows.num_rows, dtype=np.int64)
        first[self.places[::-1]] = self.keys[::-1]  # of a repeated key the first position is written last
        return self.rows.take(pa.array(np.argsort(first)))


def get_rows(
    table: TableFiles,
    state: TableState,
    keys: pa.Table,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Returns the rows of those keys in the order of the keys: one row for a repeated key, none for an absent one.

    Args:
        table: The table, which must have a primary key.
        state: The version to read.
        keys: The columns of the primary key with their types, without nulls.
        columns: The columns, in the order of the result; all if None.

    Raises:
        NotFound: a column does not exist.
    """
    return find_rows(table, state, keys, columns).in_order()


def find_rows(
    table: TableFiles,
    state: TableState,
    keys: pa.Table,
    columns: Sequence[str] | None = None,
) -> FoundRows:
    """Finds the rows of those keys; arguments and errors are those of `get_rows`."""
    definition = state.definition
    schema = definition.schema.arrow_of(columns)
    values = [name for name in schema.names if name not in definition.primary_key]
    numbered = schema.append(pa.field(NUMBER, pa.int64()))
    asked = sort_rows(_numbered(keys, definition), definition)
    probes, probe_of_key = _each_once(asked, definition)
    parts = (cast_rows(part, numbered) for some in _found(table, state, probes, values) for part in some)
    found = pa.concat_tables([numbered.empty_table(), *parts]).combine_chunks()
    row_of_probe = np.full(probes.num_rows, -1)
    row_of_probe[found.column(NUMBER).to_numpy()] = np.arange(found.num_rows)
    places = row_of_probe[probe_of_key]
    return FoundRows(found.select(schema.names), asked.column(NUMBER).to_numpy()[places >= 0], places[places >= 0])


def _found(
    table: TableFiles, state: TableState, probes: pa.Table, values: Sequence[str]
) -> Iterable[Iterable[pa.Table]]:
    """Returns the rows of keys by slot: slots of few keys are searched side by side if their files are elsewhere.

    There a search waits for three answers, one after the other: a file's footer, its keys, and the rows.
    """

    def search(task: tuple[Slot, pa.Table]) -> Iterator[pa.Table]:
        slot, some = task
        return rows_of_slot(table, slot_at(state, slot), some, values)

    tasks = list(by_slot(probes, table.definition))
    if probes.num_rows <= _FEW_KEYS and table.storage.local_path(table.location) is None:
        return in_threads("get", lambda task: list(search(task)), tasks, lambda _: None, _TOGETHER)
    return map(search, tasks)


def _numbered(keys: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns the keys with their positions, without keys that no partition can have."""
    keys = keys.select(list(definition.primary_key)).append_column(NUMBER, pa.array(np.arange(keys.num_rows)))
    for name in definition.partition_by:
        if pa.types.is_string(definition.schema.column(name).type):
            keys = keys.filter(pc.not_equal(keys.column(name), ""))  # Delta would read it as null
    return keys


def _each_once(asked: pa.Table, definition: TableDefinition) -> tuple[pa.Table, Positions]:
    """Returns each of the sorted keys once, numbered anew, and for each of them all the position among these."""
    first = np.concatenate([[True], changes(asked, definition.primary_key)])[: asked.num_rows]
    numbers = pa.array(np.arange(np.count_nonzero(first)))
    once = asked.filter(pa.array(first)).drop_columns(NUMBER).append_column(NUMBER, numbers)
    return once, np.cumsum(first) - 1


def rows_of_slot(table: TableFiles, slot: PendingSlot, probes: pa.Table, values: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the rows of keys of one slot, each with the number of its key; of pending runs it merges no other keys.

    Args:
        table: The table.
        slot: The slot's files and pending runs.
        probes: The columns of the primary key, sorted by the sort key, each key once, with `NUMBER`.
        values: Further columns of the rows.
    """
    files = [file for file in slot.base if not isinstance(file, Tombstones)]
    if not slot.runs:
        yield from _of_files(table, files, probes, values)
        return
    keys = list(table.definition.primary_key)
    left = frame_of(probes.select([*keys, NUMBER]))
    schema = pa.schema([*table.definition.schema.select([*keys, *values]).to_arrow(), (NUMBER, pa.int64())])
    for merged in merged_keys(table, slot, [*keys, *values], RequestedKeys(table.definition, probes)):
        yield arrow_table(merged.rows.join(left, on=keys, how="inner"), schema)
        left = left.join(merged.keys, on=keys, how="anti", maintain_order="left")
    rest = probes.filter(pc.is_in(probes.column(NUMBER), left[NUMBER].to_arrow()))
    if rest.num_rows:
        yield from _of_files(table, files, rest, values)


def _of_files(
    table: TableFiles,
    files: Sequence[DataFile],
    probes: pa.Table,
    values: Sequence[str],
) -> Iterator[pa.Table]:
    """Returns the key columns, the numbers and the wanted columns of the rows in the files."""
    keys = probes.select([*table.definition.primary_key, NUMBER])
    for _, lookup, asked, match in locate(table, files, keys):
        rows = asked.drop_columns(HASH).take(pa.array(match.probes))
        stored = lookup.rows_at(match.positions, values) if values else rows.select([])
        yield pa.table([*rows.columns, *stored.columns], names=[*rows.column_names, *stored.column_names])

"""Changes in the order in which they happened, such as those of a topic: a delete removes the row that was there.

In a table with ``sequence.field`` a delete without a sequence is lower than all others (FORMAT.md section 9), so the
row of its key stays if it has one. Among changes that arrive in any order this is right. Among these it would be wrong,
since the delete has happened later. So it is an error; the rows of such deletes' keys are looked up to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.by_slot import BySlot, LookupFiles
from filestore.errors import InvalidRequest
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.file_lookup import FileLookup
from filestore.merge.deduplicate import ORDINAL_COLUMN, former_rows
from filestore.model.definition import TableDefinition
from filestore.model.files import PendingRun, Slot, Tombstones
from filestore.model.merging import Deletes
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.reading.get import NUMBER, rows_of_slot
from filestore.reading.key_filters import RequestedKeys
from filestore.reading.overlay import PendingSlot
from filestore.rows.fitting import checked, putting
from filestore.rows.frames import frame_of
from filestore.rows.keys import changes
from filestore.rows.ordering import ascending_positions
from filestore.sorting.chunks import BUCKET_COLUMN, WholeKeys, by_slot
from filestore.writing.pending import pending_chunks

__all__ = ["ChangesInOrder"]

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class ChangesInOrder:
    """Checks a task's changes: each delete removes the row of its key that was there before.

    Args:
        table: The table.
        base: Its live files and tombstones by slot.
        runs: Its pending runs by slot.

    Attributes:
        looked_up: The slots in which it is right only for the stored rows that were found.
    """

    def __init__(self, table: TableFiles, base: LookupFiles, runs: BySlot[PendingRun]) -> None:
        self._table = table
        self._base = base
        self._runs = runs
        self.looked_up: set[Slot] = set()

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the same rows, sorted by partition columns, bucket and key.

        It takes the memory of the keys, sequences and kinds of a batch, or of one key's rows if those are more.

        Raises:
            InvalidRequest: ``delete-without-sequence``; or what `filestore.rows.fitting.checked` refuses.
        """
        definition = self._table.definition
        sequence, slot = definition.sequence_field, (*definition.partition_by, BUCKET_COLUMN)
        if sequence is None or definition.merging.deletes is not Deletes.REMOVE:
            yield from batches
            return
        needed = {*slot, *definition.primary_key, *definition.sort_key, sequence, KIND_COLUMN, ORDINAL_COLUMN}
        whole = WholeKeys((*slot, *definition.sort_key))
        for batch in batches:
            if KIND_COLUMN in batch.schema.names:
                rows = pa.Table.from_batches([batch])
                if _unplaced(rows, sequence).any():
                    checked(rows, definition)
                self._check(whole.add(rows.select([name for name in rows.column_names if name in needed])), sequence)
            yield batch
        self._check(whole.rest(), sequence)

    def _check(self, ended: pa.Table | None, sequence: str) -> None:
        """Checks all changes of some keys."""
        if ended is not None and _unplaced(ended, sequence).any():
            for slot, rows in by_slot(ended, self._table.definition):
                self._check_slot(slot, rows, sequence)

    def _check_slot(self, slot: Slot, rows: pa.Table, sequence: str) -> None:
        definition = self._table.definition
        rows = _counting(rows, definition)
        keys = np.concatenate([[0], np.cumsum(changes(rows, definition.sort_key))])[: rows.num_rows]
        if ORDINAL_COLUMN in rows.column_names:  # keys stay where they are
            rows = rows.take(pa.array(np.lexsort((rows.column(ORDINAL_COLUMN).to_numpy(), keys))))
        asked = np.isin(keys, keys[_unplaced(rows, sequence)])
        if not asked.any():
            return
        self.looked_up.add(slot)
        rows, keys = rows.filter(pa.array(asked)), keys[asked]
        probes = rows.select(definition.primary_key).append_column(NUMBER, pa.array(keys))
        probes = probes.filter(pa.array(np.append(True, np.diff(keys) != 0)))
        own = _History(keys, rows.column(sequence), putting(rows))
        history = _History.joined([*self._stored(slot, probes, sequence), own])
        late = _unplaced(rows, sequence) & history.follows_row()[-len(keys) :]
        if late.any():
            raise _late(rows.slice(int(np.argmax(late)), 1), definition)

    def _stored(self, slot: Slot, probes: pa.Table, sequence: str) -> Iterator[_History]:
        """Yields what the table has of the keys: remembered deletes, rows of files, then pending runs in order."""
        table, definition, base = self._table, self._table.definition, self._base.of(slot)
        numbers = probes.column(NUMBER).to_numpy()
        for run in (file for file in base if isinstance(file, Tombstones)):
            for match in FileLookup(table, run, [sequence]).find(probes):
                assert match.values is not None
                none = np.zeros(len(match.probes), dtype=np.bool_)
                yield _History(numbers[match.probes], match.values.column(sequence), none)
        for found in rows_of_slot(table, PendingSlot(slot, base, ()), probes, [sequence]):
            all_of_them = np.ones(found.num_rows, dtype=np.bool_)
            yield _History(found.column(NUMBER).to_numpy(), found.column(sequence), all_of_them)
        runs, names = self._runs.of(slot), list(definition.primary_key)
        for chunk in pending_chunks(table, slot, runs, [*names, sequence], RequestedKeys(definition, probes)):
            rows = _counting(chunk, definition)
            rows = rows.take(pa.array(np.argsort(rows.column(ORDINAL_COLUMN).to_numpy())))
            keys = frame_of(rows.select(names)).join(frame_of(probes), on=names, how="left", maintain_order="left")
            yield _History(keys[NUMBER].to_numpy(), rows.column(sequence), putting(rows))


@dataclass(frozen=True, slots=True)
class _History:
    """Rows and changes of keys; those of one key are in the order in which they happened.

    Attributes:
        keys: The number of each one's key.
        sequences: Its sequence.
        puts: Whether it puts a row.
    """

    keys: Numbers
    sequences: pa.ChunkedArray
    puts: Mask

    @classmethod
    def joined(cls, parts: Sequence[_History]) -> _History:
        """Returns the parts one after the other."""
        kind = parts[-1].sequences.type
        return cls(
            np.concatenate([part.keys for part in parts]),
            pa.chunked_array([chunk.cast(kind) for part in parts for chunk in part.sequences.chunks], kind),
            np.concatenate([part.puts for part in parts]),
        )

    def follows_row(self) -> Mask:
        """Marks those before which their key has a row with a sequence: a delete without one does not remove it.

        Of what a key has, that with the highest sequence counts, of equal ones the last.
        """
        place = ascending_positions(pl.DataFrame({"sequence": pl.Series(self.sequences)})).to_numpy()
        rank = np.empty(len(place), dtype=np.int64)
        rank[place] = np.arange(len(place))
        highest = pl.DataFrame({"key": self.keys, "rank": rank}).select(pl.col("rank").cum_max().shift(1).over("key"))
        before = highest.to_series()
        is_row = self.puts & np.asarray(self.sequences.is_valid(), dtype=np.bool_)
        return np.asarray(before.is_not_null() & pl.Series(is_row[place[before.fill_null(0).to_numpy()]]), np.bool_)


def _unplaced(rows: pa.Table, sequence: str) -> Mask:
    """Marks the rows that remove a row, and have no sequence."""
    unplaced: Mask = ~putting(rows) & np.asarray(rows.column(sequence).is_null(), dtype=np.bool_)
    return unplaced


def _counting(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Leaves out the former rows of updates, of which the new ones count."""
    if definition.merges_values:  # all of them change nothing
        return rows.filter(pc.not_equal(rows.column(KIND_COLUMN), str(RowKind.UPDATE_BEFORE)))
    return rows.filter(pa.array(~former_rows(rows, definition.sort_key)))


def _late(row: pa.Table, definition: TableDefinition) -> InvalidRequest:
    key, sequence = row.select(definition.primary_key).to_pylist()[0], definition.sequence_field
    return InvalidRequest(
        f"the delete of {key} has no value of column {sequence}, by which the table orders changes (sequence.field), "
        "and the row that it deletes has one, so that row would stay: have deletes carry the whole row, as Debezium's "
        "do with REPLICA IDENTITY FULL; leave them out (in an INSERT by WHERE _kind IN ('+I', '+U')); or write to a "
        "table without sequence.field",
        code="delete-without-sequence",
    )

"""Changes in the order in which they happened, such as those of a topic: a delete removes the row that was there.

In a table with ``sequence.field`` a delete without a sequence is lower than all others (FORMAT.md section 9), so the
row of its key stays if it has one. Among changes that arrive in any order this is right. Among these it would be wrong,
since the delete has happened later. So it is an error; the rows of such deletes' keys are looked up to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, PendingRun, Slot
from filestore.model.merging import Deletes
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.reading.get import NUMBER, rows_of_slot
from filestore.reading.overlay import PendingSlot
from filestore.rows.fitting import putting
from filestore.rows.frames import frame_of
from filestore.rows.keys import changes
from filestore.rows.ordering import ascending_positions
from filestore.sorting.chunks import BUCKET_COLUMN, by_slot, whole_keys

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

    def __init__(
        self, table: TableFiles, base: Mapping[Slot, Sequence[DataFile]], runs: Mapping[Slot, Sequence[PendingRun]]
    ) -> None:
        self._table = table
        self._base = base
        self._runs = runs
        self.looked_up: set[Slot] = set()

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the same rows, sorted by partition columns, bucket and key; a key's rows are in memory together.

        Raises:
            InvalidRequest: ``delete-without-sequence``.
        """
        definition = self._table.definition
        if definition.sequence_field is None or definition.merging.deletes is not Deletes.REMOVE:
            yield from batches
            return
        pieces = (pa.Table.from_batches([batch]) for batch in batches)
        for rows in whole_keys(pieces, (*definition.partition_by, BUCKET_COLUMN, *definition.sort_key)):
            for slot, some in by_slot(rows, definition):
                self._check(slot, some)
            yield from rows.to_batches()

    def _check(self, slot: Slot, rows: pa.Table) -> None:
        definition, sequence = self._table.definition, self._table.definition.sequence_field
        assert sequence is not None
        if KIND_COLUMN not in rows.column_names:
            return
        if definition.merges_values:  # such a table ignores the former rows of updates
            rows = rows.filter(pc.not_equal(rows.column(KIND_COLUMN), str(RowKind.UPDATE_BEFORE)))
        if not rows.column(sequence).null_count:
            return
        groups = np.concatenate([[0], np.cumsum(changes(rows, definition.sort_key))])
        if ORDINAL_COLUMN in rows.column_names:  # groups stay where they are
            rows = rows.take(pa.array(np.lexsort((rows.column(ORDINAL_COLUMN).to_numpy(), groups))))
        unplaced = np.asarray(rows.column(sequence).is_null()) & _removing(rows, groups)
        if not unplaced.any():
            return
        self.looked_up.add(slot)
        asked = np.isin(groups, groups[unplaced])
        rows, groups, unplaced = rows.filter(pa.array(asked)), groups[asked], unplaced[asked]
        late = unplaced & _stays(rows, groups, self._stored(slot, rows, groups, sequence), sequence)
        if late.any():
            raise _late(rows.slice(int(np.argmax(late)), 1), definition)

    def _stored(self, slot: Slot, rows: pa.Table, groups: Numbers, sequence: str) -> pa.Table:
        """Returns the sequences of the stored rows, each with the number of its key's group."""
        definition = self._table.definition
        first = np.append(True, np.diff(groups) != 0)
        keys = rows.select(definition.primary_key).append_column(NUMBER, pa.array(groups)).filter(pa.array(first))
        stored = PendingSlot(slot, tuple(self._base.get(slot, ())), tuple(self._runs.get(slot, ())))
        schema = pa.schema([definition.schema.to_arrow().field(sequence), pa.field(NUMBER, pa.int64())])
        found = rows_of_slot(self._table, stored, keys, [sequence])
        return pa.concat_tables([schema.empty_table(), *(part.select(schema.names).cast(schema) for part in found)])


def _removing(rows: pa.Table, groups: Numbers) -> Mask:
    """Marks the rows after which their key has no row: not the ``-U`` of an update, which its ``+U`` follows."""
    puts = putting(rows)
    followed = np.append((groups[1:] == groups[:-1]) & puts[1:], False)
    before = np.asarray(pc.equal(rows.column(KIND_COLUMN), str(RowKind.UPDATE_BEFORE)), dtype=np.bool_)
    removing: Mask = ~puts & ~(before & followed)
    return removing


def _stays(rows: pa.Table, groups: Numbers, stored: pa.Table, sequence: str) -> Mask:
    """Marks the changes before which their key has a row with a sequence: one without does not replace it.

    A key's row is that of the highest sequence among the stored one and the changes so far, of equal ones the last.

    Args:
        rows: Changes, those of a key in the order of their arrival.
        groups: For each of them the number of its key, ascending.
        stored: The sequences of stored rows with their keys' numbers.
        sequence: The sequence field.
    """
    count, known = stored.num_rows, stored.select([sequence])
    values = pa.concat_tables([known, rows.select([sequence]).cast(known.schema)])
    place = ascending_positions(frame_of(values)).to_numpy()  # of equal ones the stored row is the earlier one
    rank = np.empty(len(place), dtype=np.int64)
    rank[place] = np.arange(len(place))
    is_row = np.append(np.ones(count, dtype=np.bool_), putting(rows)) & np.asarray(values[sequence].is_valid())
    of_key = np.append(stored.column(NUMBER).to_numpy(), groups)
    highest = pl.DataFrame({"key": of_key, "rank": rank}).select(pl.col("rank").cum_max().shift(1).over("key"))
    before = highest.to_series().slice(count)
    return np.asarray(before.is_not_null() & pl.Series(is_row[place[before.fill_null(0).to_numpy()]]), dtype=np.bool_)


def _late(row: pa.Table, definition: TableDefinition) -> InvalidRequest:
    key, sequence = row.select(definition.primary_key).to_pylist()[0], definition.sequence_field
    return InvalidRequest(
        f"the delete of {key} has no value of column {sequence}, by which the table orders changes (sequence.field), "
        "and the row that it deletes has one, so that row would stay: have deletes carry the whole row, as Debezium's "
        "do with REPLICA IDENTITY FULL; leave them out (in an INSERT by WHERE _kind IN ('+I', '+U')); or write to a "
        "table without sequence.field",
        code="delete-without-sequence",
    )

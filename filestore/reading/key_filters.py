"""Filters that choose keys of pending runs: readers merge only the changes of these keys (FORMAT.md section 11).

Merging one key needs no row of another, so other keys cost nothing, and a key whose merged value its column cannot hold
fails only readers that request it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from filestore.files.bounds import file_bounds, row_group_bounds
from filestore.files.footers import Footer
from filestore.files.parquet import ParquetReader
from filestore.lazily import pl
from filestore.lookup.key_match import bounds_between
from filestore.model.definition import TableDefinition
from filestore.model.files import PendingRun
from filestore.reading.predicate import Condition
from filestore.reading.pruning import may_hold, on_columns
from filestore.rows.frames import frame_of
from filestore.rows.keys import Key, decode_key
from filestore.writing.pending import Mask

__all__ = ["KeyCondition", "RequestedKeys"]


@dataclass(frozen=True, slots=True, eq=False)
class RequestedKeys:
    """Chooses given keys of one slot.

    Attributes:
        definition: The table's definition.
        keys: The columns of the primary key, sorted by the sort key; each key once.
    """

    definition: TableDefinition
    keys: pa.Table

    def in_run(self, run: PendingRun) -> bool:
        """Implements `filestore.writing.pending.KeyFilter`."""
        types = [self.definition.schema.column(name).type for name in self.definition.sort_key]
        return self._between(decode_key(run.min_key, types), decode_key(run.max_key, types))

    def in_groups(self, run: PendingRun, parquet: ParquetReader) -> Mask:
        """Implements `filestore.writing.pending.KeyFilter`."""
        column = parquet.leaf(self.definition.schema.column(self.definition.sort_key[0]).in_files)
        groups = (parquet.footer.row_group(n).column(column) for n in range(parquet.footer.num_row_groups))
        known = [g.statistics if g.statistics is not None and g.statistics.has_min_max else None for g in groups]
        return np.array([s is None or self._between((s.min,), (s.max,)) for s in known], dtype=np.bool_)

    def of_rows(self, rows: pa.Table) -> Mask:
        """Implements `filestore.writing.pending.KeyFilter`."""
        names = list(self.definition.primary_key)
        numbered = frame_of(rows.select(names)).with_row_index("_row")
        found = numbered.join(frame_of(self.keys.select(names)), on=names, how="semi")["_row"]
        mask = np.zeros(rows.num_rows, dtype=np.bool_)
        mask[found.to_numpy()] = True
        return mask

    def _between(self, low: Key, high: Key) -> bool:
        start, end = bounds_between(self.keys, self.definition.sort_key, low, high)
        return start < end


@dataclass(frozen=True, slots=True, eq=False)
class KeyCondition:
    """Chooses the keys for which a reader's condition may be true.

    Attributes:
        definition: The table's definition.
        condition: A condition on columns of the primary key; it can be evaluated for every key.
    """

    definition: TableDefinition
    condition: Condition

    @classmethod
    def of(cls, condition: Condition | None, definition: TableDefinition) -> KeyCondition | None:
        """Derives the filter from a reader's condition; None if it does not restrict the keys."""
        known = None if condition is None else on_columns(condition.expression, definition.primary_key)
        return None if known is None else cls(definition, Condition.of(known, definition.schema))

    def in_run(self, run: PendingRun) -> bool:
        """Implements `filestore.writing.pending.KeyFilter`."""
        bounds = file_bounds([run.as_file()], self._columns, self.definition)
        return bool(may_hold(self.condition.expression, bounds).any())

    def in_groups(self, run: PendingRun, parquet: ParquetReader) -> Mask:
        """Implements `filestore.writing.pending.KeyFilter`."""
        bounds = row_group_bounds([(Footer.of(parquet), run.as_file())], self._columns, self.definition)
        return may_hold(self.condition.expression, bounds)

    def of_rows(self, rows: pa.Table) -> Mask:
        """Implements `filestore.writing.pending.KeyFilter`."""
        return self.of_frame(frame_of(rows.select(self._columns)))

    def of_frame(self, rows: pl.DataFrame) -> Mask:
        """Marks the rows of a frame with the condition's columns, as `of_rows` does."""
        return self.condition.wanted(rows).to_numpy()

    @property
    def _columns(self) -> Sequence[str]:
        return self.condition.columns

"""The changes of a write with ``changelog-producer = input``: rows as they arrived (FORMAT.md section 13). Pure.

A row that removes one (``-U``, ``-D``) has to say which. If it lacks a value, as a delete with nothing but its key
does, nobody knows whether the removed row had a null there. So the changes of its key are those of the look-up: the
stored row before the write, and the row after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.changelog.images import changes_as_written, in_arrival_order
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.merging import Deletes
from filestore.model.table_options import TableOptions
from filestore.rows.fitting import putting
from filestore.rows.keys import changes

__all__ = ["Arrived", "by_look_up", "lacks_a_value"]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def by_look_up(definition: TableDefinition) -> TableDefinition:
    """Returns the definition by which changes are recorded whose rows did not arrive as a changelog.

    A statement that has read the rows which it changes, or a fold of runs that have one row of each key, knows the new
    rows. Where the table takes the changes as they arrive, those before are looked up: in its change data, and in its
    log, which keeps its mode.
    """
    if definition.changelog_producer is not ChangelogProducer.INPUT:
        return definition
    own = {"changelog-producer": "lookup", "log.changelog-mode": str(definition.log_mode)}
    return replace(definition, options=TableOptions.parse(dict(definition.options.given) | own))


def lacks_a_value(rows: pa.Table, definition: TableDefinition) -> Mask:
    """Marks the rows with a null outside of their key."""
    lacks = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in definition.schema:
        if column.name not in definition.primary_key and rows.column(column.name).null_count:
            lacks |= np.asarray(rows.column(column.name).is_null())
    return lacks


@dataclass(frozen=True, slots=True)
class Arrived:
    """The rows of a chunk as they arrived.

    Attributes:
        rows: All rows, by key and by arrival.
        keys: The number of each row's key in the chunk.
        incomplete: For each key whether a row that removes one lacks a value, so that the changes are looked up.
    """

    rows: pa.Table
    keys: Rows
    incomplete: Mask

    @classmethod
    def of(cls, chunk: pa.Table, definition: TableDefinition) -> Arrived:
        """Takes the rows of a chunk, of which there is one at least; deletes that the table ignores are left out."""
        rows = in_arrival_order(chunk, definition)
        keys = np.append(0, np.cumsum(changes(rows, definition.sort_key)))
        incomplete = np.zeros(int(keys[-1]) + 1, dtype=np.bool_)
        puts = putting(rows)
        if definition.merging.deletes is Deletes.IGNORE:
            return cls(rows.filter(pa.array(puts)), keys[puts], incomplete)
        incomplete[keys[~puts & lacks_a_value(rows, definition)]] = True
        return cls(rows, keys, incomplete)

    def changes(self, images: pa.Table, places: Rows, definition: TableDefinition) -> pa.Table:
        """Returns the changes as change data, key by key.

        Args:
            images: The changes of the incomplete keys, as `filestore.changelog.images.images` returns them.
            places: For each of them the number of its key.
            definition: The table's definition.
        """
        if not self.incomplete.any():
            return changes_as_written(self.rows, definition)
        whole = ~self.incomplete[self.keys]
        known = changes_as_written(self.rows.filter(pa.array(whole)), definition)
        order = np.argsort(np.concatenate([self.keys[whole], places]), kind="stable")
        return pa.concat_tables([known, images]).take(pa.array(order))

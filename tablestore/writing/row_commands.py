"""DELETE and UPDATE without Spark: the rows that a condition selects are read, worked out, and written by their keys.

They hold only if none of these rows has changed since they were read. Otherwise all begins again on the newest version,
as the same statements of SQL do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest, Unsupported
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.model.merging import Deletes, MergeEngine
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.snapshot import Snapshot
from filestore.reading.predicate import Predicate, require_row_by_row
from filestore.reading.scan import plan_scan, scan
from filestore.rows.frames import frame_of
from filestore.table import FileStore
from tablestore.incoming.conform import unread_by_deletes
from tablestore.incoming.given import arrow_rows
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.write import READ_CHANGED, Basis
from tablestore.writing.writer import TableWriter

__all__ = ["RowCommand", "refused_commands"]


def refused_commands(definition: TableDefinition) -> dict[str, str]:
    """Lists the commands on rows that a table with a key cannot do, each with the sentence that says why. Pure."""
    merging = definition.merging
    refused: dict[str, str] = {}
    if merging.deletes is not Deletes.REMOVE:
        ignores = " and ignore-delete = true" if merging.deletes is Deletes.IGNORE else ""
        message = (
            f"the table has merge-engine = {merging.engine}{ignores}, by which a delete does not remove "
            "the row: INSERT what is to be merged, or overwrite a partition"
        )
        refused = dict.fromkeys(("DELETE", "MERGE"), message)
    if merging.engine is not MergeEngine.DEDUPLICATE:
        message = (
            f"the table has merge-engine = {merging.engine}, which merges what is written with the stored row, so the "
            "row would not become what the statement says: INSERT what is to be merged"
        )
        refused |= dict.fromkeys(("UPDATE", "MERGE"), message)
    return refused


@dataclass(frozen=True, slots=True)
class RowCommand:
    """Removes rows, or changes columns of theirs.

    Attributes:
        where: Which rows.
        assigned: By column the new value, or a polars expression of the row; None: the rows are removed.
    """

    where: Predicate
    assigned: Mapping[str, Any] | None = None

    def run(self, store: FileStore, writer: TableWriter) -> Snapshot | None:
        """Does it as one commit; returns None if there is no such row.

        Raises:
            Unsupported: ``no-primary-key``, ``merge-engine``.
            InvalidRequest: ``key-changed``, ``bad-predicate``, ``bad-value``. Nothing was changed.
            NotFound: ``unknown-column``.
            Conflict: lost against other writers, again and again. Nothing was changed.
        """
        begun = 0
        while True:
            state = store.state()
            self._check(state.definition)
            rows = self._rows(store, state)
            if not rows.num_rows:
                return None
            try:
                with GivenRows(rows) as given:
                    return writer.write(given, base=state, basis=Basis.of(state.version))
            except Conflict as conflict:
                if conflict.code != READ_CHANGED or begun == state.definition.options["commit.max-retries"]:
                    raise
                begun += 1

    def _check(self, definition: TableDefinition) -> None:
        command = "DELETE" if self.assigned is None else "UPDATE"
        if not definition.primary_key:
            raise Unsupported(
                f"the table has no primary key, by which {command} could name rows: run it in SQL, on Spark, which "
                "writes their files anew",
                code="no-primary-key",
            )
        if (refusal := refused_commands(definition).get(command)) is not None:
            raise Unsupported(refusal, code="merge-engine")
        for name, value in (self.assigned or {}).items():
            definition.schema.column(name)
            if name in definition.primary_key:
                raise InvalidRequest(
                    f"column {name!r} is of the primary key, which an UPDATE cannot change: delete the row, and write "
                    "one with the other key",
                    code="key-changed",
                )
            if isinstance(value, pl.Expr):
                require_row_by_row(value, definition.schema)

    def _rows(self, store: FileStore, state: TableState) -> pa.Table:
        """Reads the rows, and returns what is to be written."""
        definition = state.definition
        unread = unread_by_deletes(definition) if self.assigned is None else ()
        names = [name for name in definition.schema.names if name not in unread]
        plan = plan_scan(state, names, self.where)
        with store.reading(state.version):
            stored = pa.concat_tables([plan.schema.empty_table(), *scan(store.table_files(state), plan)])
        if self.assigned is None:
            return stored.append_column(KIND_COLUMN, pa.repeat(str(RowKind.DELETE), stored.num_rows))
        # each value is one of the row as it was, whatever the others become
        new = {name: _values(name, value, rows=stored, definition=definition) for name, value in self.assigned.items()}
        return pa.table({name: new.get(name, stored[name]) for name in names})


def _values(name: str, value: Any, rows: pa.Table, definition: TableDefinition) -> pa.ChunkedArray:
    """Returns a column's new values, which `conform` fits to its type by the rules for the values of rows."""
    if not isinstance(value, pl.Expr):
        [column] = arrow_rows([{name: value}], pa.schema([definition.schema.to_arrow().field(name)])).columns
        return column.take(pa.array(np.zeros(rows.num_rows, np.int64)))
    try:
        found = frame_of(rows).with_columns(value.alias(name)).select(name)
    except pl.exceptions.PolarsError as error:
        raise InvalidRequest(f"column {name!r} cannot be set to {value}: {error}", code="bad-value") from error
    return found.to_arrow(compat_level=pl.CompatLevel.oldest()).column(name)

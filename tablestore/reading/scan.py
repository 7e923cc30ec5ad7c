"""`Scan`: a read of one version without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from filestore.delta.state import TableState
from filestore.reading.predicate import Predicate
from filestore.reading.scan import plan_scan, scan
from filestore.table import FileStore
from tablestore.reading.fresh import LogTail, fresh_rows

__all__ = ["Scan"]


@dataclass(frozen=True, slots=True)
class Scan:
    """A read that was planned on one version and runs when its rows are asked for."""

    filestore: FileStore
    state: TableState
    columns: Sequence[str] | None
    where: Predicate | None
    tail: LogTail | None = None
    """What the log shows beyond the version, if that is wanted too and there is any."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of about a row group: memory stays bounded."""
        with self.filestore.reading(self.state.version):
            for part in self._rows():
                yield from part.to_batches()

    def _rows(self) -> Iterator[pa.Table]:
        if self.tail is not None:
            return fresh_rows(self.filestore, self.state, self.tail, self.columns, self.where)
        plan = plan_scan(self.state, self.columns, self.where)
        return scan(self.filestore.files(self.state), plan)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        schema = self.state.definition.schema
        wanted = schema if self.columns is None else schema.select(self.columns)
        return pa.Table.from_batches(self.to_batches(), schema=wanted.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars frame."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

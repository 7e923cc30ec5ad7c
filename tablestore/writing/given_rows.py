"""`GivenRows`: the runner of a write whose rows are in memory (`tablestore.writing.write_job`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from filestore.sorting.order import sort_rows
from tablestore.incoming.conform import conform
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["GivenRows"]


class GivenRows:
    """Writes one Arrow table in this process, in the newest columns of the table that it is written to.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._sorted: tuple[TableDefinition, list[pa.RecordBatch]] | None = None

    def __call__(self, job: WriteJob) -> Sequence[TaskOutcome]:
        """Runs the job's only task (`tablestore.writing.write_job.WriteRunner`)."""
        batches = self.fitted(job.table.definition)
        return [job.run(batches, "0.0")] if batches else []

    def fitted(self, definition: TableDefinition) -> list[pa.RecordBatch]:
        """Fits the rows to a definition and sorts them, once for each definition; for errors see `conform`."""
        if self._sorted is None or self._sorted[0] != definition:
            rows = conform(self._rows, definition)
            if definition.sequence_field is not None and KIND_COLUMN in rows.column_names:
                rows = rows.append_column(ORDINAL_COLUMN, pa.array(np.arange(rows.num_rows)))
            self._sorted = definition, sort_rows(rows, definition).to_batches()
        return self._sorted[1]

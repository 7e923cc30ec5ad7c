"""Reads a log's records with the columns of one version, whichever version wrote them.

Records have the names and types of their own version. So each is decoded with the columns of the version that covers
it, and columns are matched by their ids (`filestore.rows.reshape`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.contexts import Closing
from filestore.delta.log import Commit
from filestore.model.definition import TableDefinition
from filestore.model.log_range import LogTransaction
from filestore.model.schema import Schema
from filestore.rows.reshape import reshaped
from log.table.config import LogConfig
from log.table.store import LogStore
from log.table.systems import open_log

__all__ = ["RecordReader", "definition_after"]


class RecordReader(Closing):
    """Reads one table's log. Close it, or use it in a ``with``.

    Args:
        config: The log; None for a table without one, whose changes are read only from files.
        wanted: The reader's columns.
        ambient: The clock and the source of ids.
    """

    def __init__(self, config: LogConfig | None, wanted: Schema, ambient: Ambient) -> None:
        self._config = None if config is None else replace(config, schema=wanted)
        self.wanted = wanted
        self._ambient = ambient
        self._log: LogStore | None = None

    @property
    def log(self) -> LogStore:
        """The log; it is opened when it is needed."""
        if self._log is None:
            assert self._config is not None, "a table without a log has no records"
            self._log = open_log(self._config, self._ambient)
        return self._log

    def read(
        self,
        transactions: Sequence[LogTransaction],
        written: Schema,
        bucket: int | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[pa.Table]:
        """Reads the changes of transactions, with ``_kind``; of one bucket, if it is given.

        Args:
            transactions: Transactions of versions with the same columns.
            written: Those columns.
            bucket: The bucket; all if None.
            committed_ms: When the oldest of those versions was committed; see `LogStore.events`.

        Raises:
            NotFound: ``log-gap``.
            Unsupported: ``schema-changed``.
        """
        if self._config is not None and written != self._config.schema:
            self.close()
            self._config = replace(self._config, schema=written)
        for batch in self.log.read(transactions, bucket=bucket, committed_ms=committed_ms):
            yield reshaped(pa.Table.from_batches([batch.rows]), written, self.wanted)

    def reach_by(self, definition: TableDefinition) -> None:
        """Goes on with the log as a version of the table reaches it, which may be another one by now."""
        self.close()
        self._config = None if self._config is None else self._config.reached_by(definition)

    def close(self) -> None:
        """Closes the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def definition_after(commit: Commit, before: TableDefinition) -> TableDefinition:
    """The table's definition after a commit."""
    metadata = next((action["metaData"] for action in commit.actions if "metaData" in action), None)
    return before if metadata is None else TableDefinition.from_delta(metadata)

"""What an eventual log shows that no version covers yet: see `tablestore.fresh.LogTail`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.table import FileStore
from log.store import LogBatch, LogConfig
from log.systems import open_log
from log.tailing import read_until
from tablestore.log_order import unnamed
from tablestore.own_log import require_own_log

__all__ = ["VisibleTail"]


@dataclass(frozen=True, slots=True)
class VisibleTail:
    """Records of writers at work, of those that died, and of versions that come meanwhile.

    Attributes:
        files: The table.
        config: Its log.
    """

    files: FileStore
    config: LogConfig

    def changes(self, state: TableState) -> Iterator[pa.Table]:
        """Visible records that no version up to this one names, with its columns.

        Raises:
            Unavailable: the log does not answer.
            Corrupt: ``log-replaced``.
        """
        named = {transaction.id for transaction in state.open_transactions}
        ranges = [part for transaction in state.open_transactions for part in transaction.ranges]
        with open_log(replace(self.config, schema=state.definition.schema), self.files.ambient) as log:
            require_own_log(log, state)
            starts, ends = log.start_offsets(), log.end_offsets()
            since = {b: max(state.log_repaired.get(b, 0), starts[b]) for b in ends}
            behind = {b: [part for part in ranges if part.bucket == b] for b in ends}
            asked = {b: since[b] for b in ends if unnamed(since[b], ends[b], behind[b])}
            if not asked:
                return
            with log.tail(asked) as tail:
                for event in read_until(tail, ends, self.files.location):
                    if isinstance(event, LogBatch) and event.transaction_id not in named:
                        yield pa.Table.from_batches([event.rows])

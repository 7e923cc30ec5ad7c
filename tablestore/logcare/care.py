"""What a table's log needs besides writers: a janitor's call, and a look at how far it is."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.arguments import checks_arguments
from filestore.table import FileStore
from tablestore.handle import TableHandle
from tablestore.logcare.metrics import measure_log
from tablestore.logcare.status import BucketLog, log_status
from tablestore.recovering.recovery import Recovered
from tablestore.writing.transaction import TableWriter

__all__ = ["LogCare"]


@checks_arguments()
class LogCare:
    """What `tablestore.Table` offers of it."""

    handle: TableHandle
    filestore: FileStore
    _writer: TableWriter

    def recover(self) -> Recovered:
        """Ends what dead writers left in the log, as the next write would: committed or aborted, as the versions say.

        What the log itself has lost of a version is published again. Safe to repeat, and beside writers at work. Open
        transactions of other programs that hold readers of the topic back are reported: ``foreign``.

        Raises:
            Unavailable: log or storage did not answer.
        """
        return self._writer.recover()

    def log_status(self) -> Mapping[int, BucketLog]:
        """Where the log stands, by bucket; nothing for a table without one.

        Raises:
            Unavailable: the log does not answer.
            Corrupt: ``log-replaced``: it is not the table's any more.
        """
        config = self._writer.log
        found = {} if config is None else log_status(config, self.filestore, self.filestore.state())
        measure_log(self.handle.meter, self.handle.identifier, found)
        return found

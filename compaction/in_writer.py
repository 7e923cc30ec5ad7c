"""Compaction inside a long-lived writer (``compaction.in-writer``): in a thread, concurrently with its next commits.

Each writer runs one compaction at a time. It never fails a write: a lost race is logged, and so are other errors. When
the process ends, it waits for a running compaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from compaction.compact import CompactionRunner, compact_table
from compaction.tombstones import clean_tombstones
from filestore.errors import Conflict, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.operations.fold import FoldRunner, fold_table
from filestore.table import FileStore

__all__ = ["InWriter"]

logger = logging.getLogger(__name__)


class InWriter:
    """Compacts one table while its writer continues.

    Args:
        store: The writer's table. Only the writer uses it: the thread opens the table again.
        runner: Runs merges; in threads of this process if None.
        fold_runner: Folds pending runs; in threads of this process if None.
        then: Called each time afterwards, for other work on the table.
    """

    def __init__(
        self,
        store: FileStore,
        runner: CompactionRunner | None = None,
        fold_runner: FoldRunner | None = None,
        then: Callable[[FileStore], object] | None = None,
    ) -> None:
        self._writers = store
        self._then = then
        self._runner = runner
        self._fold_runner = fold_runner
        self._own: FileStore | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._asked = False
        self._running = False

    def after_commit(self, definition: TableDefinition) -> None:
        """Notes that the table was written, and checks in the background whether compaction is enabled and needed."""
        if not definition.options["compaction.in-writer"]:
            return
        with self._lock:
            self._asked = True
            if self._running:
                return  # the running one will check once more at its end
            self._running = True
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "compaction-in-writer")
            pool = self._pool
        pool.submit(self._work).add_done_callback(_tell)

    def close(self) -> None:
        """Waits for a running compaction, and ends the thread. A later commit starts a new one."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    @property
    def busy(self) -> bool:
        """Returns whether it checks or compacts the table at the moment."""
        with self._lock:
            return self._running

    def _work(self) -> None:
        try:
            while self._still_asked():
                self._compact()
        except BaseException:
            with self._lock:
                self._running = False
            raise

    def _still_asked(self) -> bool:
        with self._lock:
            asked, self._asked = self._asked, False
            if not asked:
                self._running = False
            return asked

    def _compact(self) -> None:
        try:
            if self._own is None:
                self._own = self._writers.twin()
            folded = fold_table(self._own, runner=self._fold_runner)
            snapshot = compact_table(self._own, runner=self._runner) or clean_tombstones(self._own) or folded
            if self._then is not None:
                self._then(self._own)
        except Conflict as error:
            logger.info("a compaction of %s lost the race: %s", self._writers.location, error)
        except TableStoreError as error:
            logger.warning("%s could not be compacted: %s", self._writers.location, error)
        else:
            if snapshot is not None:
                logger.info("%s was compacted: version %d", self._writers.location, snapshot.version)


def _tell(done: Future[None]) -> None:
    """Logs an unexpected error, since no caller waits for the result."""
    if (error := done.exception()) is not None:
        logger.error("a compaction in a writer failed unexpectedly", exc_info=error)

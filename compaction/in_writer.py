"""Compaction inside a writer that lives long (``compaction.in-writer``): beside its next commits, in a thread.

One at a time for each writer. It never fails a write: a lost race is logged, and so is what else goes wrong. When the
process ends, a compaction that is under way is waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from compaction.folding import FoldRunner, fold_table
from compaction.local import Runner, compact_table
from compaction.tombstones import bury
from filestore.errors import Conflict, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.table import FileStore

__all__ = ["InWriter"]

logger = logging.getLogger(__name__)


class InWriter:
    """Compacts one table as its writer goes on.

    Args:
        store: The writer's table. It stays the writer's own: the thread opens it again.
        runner: Where the merging runs; threads of this process if None.
        fold_runner: Where pending runs are folded; threads of this process if None.
        then: What else to do to the table each time, after what needed compaction has had it.
    """

    def __init__(
        self,
        store: FileStore,
        runner: Runner | None = None,
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
        """Tells that the table was written: looks, in the background, whether it needs compaction, if it wants any."""
        if not definition.options["compaction.in-writer"]:
            return
        with self._lock:
            self._asked = True
            if self._running:
                return  # it will look once more when it is done
            self._running = True
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "compaction-in-writer")
            pool = self._pool
        pool.submit(self._work).add_done_callback(_tell)

    def close(self) -> None:
        """Waits for what is under way, and lets the thread go. Another commit may follow, and begins it anew."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    @property
    def busy(self) -> bool:
        """Whether it has something to look at or to do."""
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
                self._own = FileStore.open(self._writers.storage, self._writers.location, self._writers.ambient)
            folded = fold_table(self._own, runner=self._fold_runner)
            snapshot = compact_table(self._own, runner=self._runner) or bury(self._own) or folded
            if self._then is not None:
                self._then(self._own)
        except Conflict as error:
            logger.info("a compaction of %s was in vain: %s", self._writers.location, error)
        except TableStoreError as error:
            logger.warning("%s could not be compacted: %s", self._writers.location, error)
        else:
            if snapshot is not None:
                logger.info("%s was compacted: version %d", self._writers.location, snapshot.version)


def _tell(done: Future[None]) -> None:
    """What nobody waits for would be silent."""
    if (error := done.exception()) is not None:
        logger.error("a compaction in a writer failed unexpectedly", exc_info=error)

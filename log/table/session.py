"""`LogSession`: one open log for a piece of work, such as a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Lock, get_ident
from types import TracebackType
from typing import Self

from filestore.ambient import Ambient
from log.table.config import LogConfig
from log.table.store import LogStore
from log.table.systems import open_log

__all__ = ["LogSession", "log_session"]


class LogSession:
    """Lends a log to all steps of a piece of work: each thread has one of its own, which is opened once.

    Used as a context it keeps the logs open, which connect when they are first asked for something, and closes them at
    the end. Outside of the context, and in another process to which it was sent, each loan opens the log for itself:
    only the configuration is pickled.

    REQUIRES: other threads have ended their work when the context ends.

    Args:
        config: The log.
        ambient: Clock and ids.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self.config = config
        self._ambient = ambient
        self._kept: ExitStack | None = None
        self._of_threads: dict[int, LogStore] = {}
        self._opening = Lock()

    def __reduce__(self) -> tuple[type[LogSession], tuple[LogConfig, Ambient]]:
        return LogSession, (self.config, self._ambient)

    def __enter__(self) -> Self:
        self._kept = ExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kept, self._kept = self._kept, None
        self._of_threads.clear()
        if kept is not None:
            kept.__exit__(kind, error, trace)

    @contextmanager
    def lend(self) -> Iterator[LogStore]:
        """Lends the thread's log; outside of the session's context it opens one and closes it afterwards."""
        if self._kept is None:
            with open_log(self.config, self._ambient) as log:
                yield log
            return
        thread = get_ident()
        if thread not in self._of_threads:
            with self._opening:
                self._of_threads[thread] = self._kept.enter_context(open_log(self.config, self._ambient))
        yield self._of_threads[thread]


def log_session(config: LogConfig | None, ambient: Ambient) -> AbstractContextManager[LogSession | None]:
    """A session on the log of that configuration; on None for a table without a log."""
    return nullcontext() if config is None else LogSession(config, ambient)

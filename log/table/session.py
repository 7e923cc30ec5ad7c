"""`LogSession`: one open log for a piece of work, such as a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

from filestore.ambient import Ambient
from log.table.config import LogConfig
from log.table.store import LogStore
from log.table.systems import open_log

__all__ = ["LogSession", "log_session"]


class LogSession:
    """Lends one log to all steps of a piece of work, so that it is opened once.

    Used as a context it opens the log, which connects when it is first asked for something, and closes it at the end.
    Outside of the context, and in another process to which it was sent, each loan opens the log for itself: only the
    configuration is pickled.

    REQUIRES: loans inside of the context are taken by one thread.

    Args:
        config: The log.
        ambient: Clock and ids.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self.config = config
        self._ambient = ambient
        self._open: LogStore | None = None

    def __reduce__(self) -> tuple[type[LogSession], tuple[LogConfig, Ambient]]:
        return LogSession, (self.config, self._ambient)

    def __enter__(self) -> Self:
        self._open = open_log(self.config, self._ambient).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.__exit__(kind, error, trace)

    @contextmanager
    def lend(self) -> Iterator[LogStore]:
        """Lends the open log; outside of the session's context it opens one and closes it afterwards."""
        if self._open is not None:
            yield self._open
            return
        with open_log(self.config, self._ambient) as log:
            yield log


def log_session(config: LogConfig | None, ambient: Ambient) -> AbstractContextManager[LogSession | None]:
    """A session on the log of that configuration; on None for a table without a log."""
    return nullcontext() if config is None else LogSession(config, ambient)

"""Changing how long a log keeps its records, together with the commit that says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from filestore.ambient import Ambient
from filestore.errors import CommitUnknown, TableStoreError
from log.store import LogConfig
from log.systems import open_log

__all__ = ["retention_changed"]

logger = logging.getLogger(__name__)


@contextmanager
def retention_changed(before: LogConfig | None, after: LogConfig | None, ambient: Ambient) -> Iterator[None]:
    """Sets the log's retention before the commit inside, and back if that fails.

    Args:
        before: The log as it is; None without one.
        after: The same log as it is to be.
        ambient: Clock and ids.

    Raises:
        Unavailable: the log's server does not answer. Nothing was changed.
        InvalidRequest: it refuses.
    """
    if before is None or after is None or before.retention_ms == after.retention_ms:
        yield
        return
    _set(after, after.retention_ms, ambient)
    try:
        yield
    except CommitUnknown:
        raise  # nobody knows which one the table says
    except TableStoreError:
        try:
            _set(after, before.retention_ms, ambient)
        except TableStoreError as error:
            # the error that led here is the one to tell
            logger.warning("the log of %s.%s keeps its new retention: %s", after.database, after.table, error)
        raise


def _set(config: LogConfig, milliseconds: int | None, ambient: Ambient) -> None:
    with open_log(config, ambient) as log:
        log.keep_for(milliseconds)

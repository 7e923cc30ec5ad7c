"""Drops expired partitions in writers: decides what they drop, and when they check for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, TableStoreError
from filestore.life.partition_expiry import expired_partitions
from filestore.model.table_options import TableOptions
from tablestore.writing.overwrite import Drop

__all__ = ["WriterExpiry", "expired"]

logger = logging.getLogger(__name__)

_MILLISECOND = timedelta(milliseconds=1)


def expired(state: TableState, now_ms: int) -> Drop:
    """Returns the partitions of a version that have expired at a time, in milliseconds since 1970.

    Raises:
        InvalidRequest: ``no-expiration-time``.
    """
    options = state.definition.options
    if options["partition.expiration-time"] is None:
        raise InvalidRequest(
            "the table has no partition.expiration-time, so its partitions never expire: set the option with "
            "Table.alter or `tablestore alter`, or name the partitions to drop",
            code="no-expiration-time",
        )
    return Drop(
        expired_partitions(state, now_ms),
        unless_changed=options["partition.expiration-strategy"] == "update-time",
    )


class WriterExpiry:
    """Drops expired partitions after a writer's first write, and then once in each interval."""

    def __init__(self) -> None:
        self._next_ms = 0

    def run_if_due(
        self,
        ambient: Ambient,
        options: TableOptions,
        drop: Callable[[Callable[[TableState], Drop]], object],
    ) -> None:
        """Drops expired partitions, if it is time. An error is logged, since the write itself has succeeded.

        Args:
            ambient: The clock.
            options: The table's newest options.
            drop: `TableWriter.drop_partitions`.
        """
        now = ambient.now_ms()
        if now < self._next_ms:
            return
        try:
            interval: timedelta = options["partition.expiration-check-interval"]
            self._next_ms = now + interval // _MILLISECOND
            if options["partition.expiration-time"] is not None:
                drop(lambda state: expired(state, now))
        except TableStoreError as error:
            logger.warning("expired partitions stay for now: %s", error)

"""Stores a reader's position on the brokers, and refuses one whose messages are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from filestore.ambient import Ambient
from filestore.errors import NotFound

__all__ = ["ReaderPlace", "place_gone"]

_KEEP_MS = 60 * 60 * 1000
"""Brokers remove offsets after a week, or the time that they are set to: a waiting reader writes them again."""


class ReaderPlace:
    """Stores a reader's offsets when they have changed, and from time to time if they have not.

    Args:
        write: Stores offsets.
        known: The offsets that are stored already.
        ambient: The clock.
    """

    def __init__(self, write: Callable[[Mapping[int, int]], None], known: Mapping[int, int], ambient: Ambient) -> None:
        self._write = write
        self._known = dict(known)
        self._ambient = ambient
        self._written_ms: int | None = None

    def reached(self, offsets: Mapping[int, int]) -> None:
        """Stores that everything before these offsets was read.

        Raises:
            Unavailable, InvalidRequest: as `log.kafka.groups.GroupOffsets.write`.
        """
        now_ms = self._ambient.now_ms()
        recent = self._written_ms is not None and now_ms - self._written_ms < _KEEP_MS
        if recent and offsets == self._known:
            return
        self._write(offsets)
        self._known, self._written_ms = dict(offsets), now_ms


@contextmanager
def place_gone(consumer: str) -> Iterator[None]:
    """Adds the consumer to the error of a missing offset, since a reader with its id would return to it each time."""
    try:
        yield
    except NotFound as error:
        if error.code != "offset-gone":
            raise
        raise NotFound(
            f"{error}. It is the position of consumer {consumer!r}, and messages after it may be lost: name another "
            "consumer, or move the offsets of the group of that name with kafka-consumer-groups --reset-offsets",
            code="offset-gone",
        ) from error

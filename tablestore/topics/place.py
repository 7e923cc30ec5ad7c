"""The place of a reader that the brokers remember for it, and what follows if the messages there are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from filestore.ambient import Ambient
from filestore.errors import NotFound

__all__ = ["ReaderPlace", "place_gone"]

_KEEP_MS = 60 * 60 * 1000
"""Brokers forget what was not said for a week, or as long as they are set to: a reader that waits says it anew."""


class ReaderPlace:
    """Keeps a reader's offsets whenever they have changed, and from time to time while they do not.

    Args:
        write: Keeps offsets.
        known: What is kept already.
        ambient: The clock.
    """

    def __init__(self, write: Callable[[Mapping[int, int]], None], known: Mapping[int, int], ambient: Ambient) -> None:
        self._write = write
        self._known = dict(known)
        self._ambient = ambient
        self._written_ms: int | None = None

    def reached(self, offsets: Mapping[int, int]) -> None:
        """All that lies before these offsets was taken.

        Raises:
            Unavailable, InvalidRequest: as `log.kafka.group_offsets.GroupOffsets.write`.
        """
        now_ms = self._ambient.now_ms()
        recent = self._written_ms is not None and now_ms - self._written_ms < _KEEP_MS
        if recent and offsets == self._known:
            return
        self._write(offsets)
        self._known, self._written_ms = dict(offsets), now_ms


@contextmanager
def place_gone(consumer: str) -> Iterator[None]:
    """Says of an offset that is gone whose place it was, since a reader with that id comes back to it each time."""
    try:
        yield
    except NotFound as error:
        if error.code != "offset-gone":
            raise
        raise NotFound(
            f"{error}. It is the place of consumer {consumer!r}, and messages after it may be lost: name another "
            "consumer, or move the offsets of the group of that name with kafka-consumer-groups --reset-offsets",
            code="offset-gone",
        ) from error

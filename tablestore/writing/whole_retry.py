"""Doing a write again as a whole, as long as what it rests on is changed by others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from filestore.ambient import Ambient
from filestore.delta.conflict import BASE_EXPIRED, METADATA_CHANGED
from filestore.errors import Conflict

__all__ = ["Again", "settled"]

T = TypeVar("T")

_TRY_AGAIN = (METADATA_CHANGED, BASE_EXPIRED)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 2.0


class Again(Conflict):
    """The rows that a merge or a choice rests on are no longer the stored ones: it has to be done again."""


def settled(once: Callable[[], T], most: int, ambient: Ambient, retried: Callable[[Conflict], None]) -> T:
    """What the work gives at last.

    Args:
        once: The work.
        most: How often it is done again.
        ambient: Pauses between attempts.
        retried: Is told why, before each that is done again.

    Raises:
        Conflict: another one than those that doing it again can cure, or too many of those.
    """
    for attempt in range(most + 1):
        try:
            return once()
        except Conflict as error:
            if attempt == most or not (isinstance(error, Again) or error.code in _TRY_AGAIN):
                raise
            retried(error)
            pause = ambient.chance() * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * (1 << min(attempt, 10)))
            ambient.sleep(pause)
    raise AssertionError("the loop returns or raises")

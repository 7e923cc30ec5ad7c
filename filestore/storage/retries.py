"""Which requests to a store of objects are repeated, how often, and after which pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from filestore.errors import Unavailable
from filestore.storage.refusals import BUSY

__all__ = ["repeated"]

Result = TypeVar("Result")

_ATTEMPTS = 6
_LONGEST_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0


def repeated(request: Callable[[], Result]) -> Result:
    """Sends a request, and repeats it while the store is busy: at most 5 times, and within a minute.

    The request must be one that can be repeated: all but a conditional write can.

    Raises:
        Unavailable: the store stayed busy, or refused for another reason.
    """
    attempts = Retrying(
        retry=retry_if_exception(_may_succeed),
        stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(_LONGEST_S),
        wait=wait_random_exponential(_FIRST_PAUSE_S, _LONGEST_PAUSE_S),
        reraise=True,
    )
    return attempts(request)


def _may_succeed(error: BaseException) -> bool:
    return isinstance(error, Unavailable) and error.code == BUSY

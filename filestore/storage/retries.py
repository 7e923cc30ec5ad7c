"""Decides which requests to a store of objects are repeated, how often, and after which pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from filestore.errors import Unavailable
from filestore.storage.refusals import BUSY, NO_ANSWER

__all__ = ["repeated"]

Result = TypeVar("Result")

_ATTEMPTS = 6
_BEGINS_WITHIN_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0


def repeated(request: Callable[[], Result], may_succeed: Callable[[BaseException], bool] | None = None) -> Result:
    """Sends a request, and repeats it while the store is busy or does not answer: at most 5 times.

    No repetition begins more than a minute after the first request. A client waits for a reply much shorter than that
    (`filestore.storage.s3_settings.REQUEST_S`), so that a request whose reply is lost has several repetitions.

    Args:
        request: It can be repeated: all but a conditional write can.
        may_succeed: After which errors it is repeated; None: after those that say that the store may do it later.

    Raises:
        Unavailable: the store stayed busy, did not answer, or refused the request.
    """
    attempts = Retrying(
        retry=retry_if_exception(may_succeed or _may_succeed_later),
        stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(_BEGINS_WITHIN_S),
        wait=wait_random_exponential(_FIRST_PAUSE_S, _LONGEST_PAUSE_S),
        reraise=True,
    )
    return attempts(request)


def _may_succeed_later(error: BaseException) -> bool:
    return isinstance(error, Unavailable) and error.code in (BUSY, NO_ANSWER)

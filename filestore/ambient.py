"""The clock, ids, random numbers, and a thread beside: other code gets them as an `Ambient`.

A test passes its own one, so that every commit becomes a pure function of its inputs.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from filestore.beside import Work, at_once, beside

__all__ = ["Ambient", "system_ambient"]


def _monotonic_s() -> float:
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Ambient:
    """The clock, ids and random numbers of a program, and what does work beside it.

    Attributes:
        now_ms: Returns the wall clock, in milliseconds since 1970-01-01 UTC.
        new_id: Returns a fresh UUID in its 36-character form.
        chance: Returns a float in [0, 1), for the jitter of retries.
        sleep: Waits that many seconds; it is used only between retries.
        monotonic_s: Returns the seconds of a clock that never jumps; only differences have a meaning, in one process.
        beside: Does work for which no caller waits (`filestore.beside`).
    """

    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    chance: Callable[[], float]
    sleep: Callable[[float], None]
    monotonic_s: Callable[[], float] = _monotonic_s
    beside: Callable[[str, Work], None] = at_once


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> str:
    return str(uuid.uuid4())


def _chance() -> float:
    return random.random()


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def system_ambient() -> Ambient:
    """Returns the real clock, random UUIDs and random numbers: pickled by name, so each process has its own."""
    return Ambient(_now_ms, _new_id, _chance, _sleep, _monotonic_s, beside)

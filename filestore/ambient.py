"""The only place that reads the clock, makes ids or rolls dice: everything else is handed an `Ambient`.

A test passes its own and every commit becomes a pure function of its inputs.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Ambient", "system_ambient"]


@dataclass(frozen=True, slots=True)
class Ambient:
    """What a program takes from the world around it.

    Attributes:
        now_ms: Wall clock, milliseconds since 1970-01-01 UTC.
        new_id: A fresh UUID in its 36-character form.
        chance: A float in [0, 1), for the jitter of retries.
        sleep: Waits that many seconds, between retries only.
    """

    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    chance: Callable[[], float]
    sleep: Callable[[float], None]


def system_ambient() -> Ambient:
    """The real clock, random UUIDs, the real dice."""
    return Ambient(
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        chance=random.random,
        sleep=time.sleep,
    )

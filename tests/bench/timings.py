"""`Timings`: seconds by what was done and who did it."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

Result = TypeVar("Result")


@dataclass
class Timings:
    """Seconds by what was done and who did it."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def take(self, stage: str, who: str, work: Callable[[], Result]) -> Result:
        begin = time.perf_counter()
        result = work()
        self.seconds[stage, who].append(time.perf_counter() - begin)
        return result

    def last(self, stage: str, who: str) -> float:
        return self.seconds[stage, who][-1]

    def median(self, stage: str, who: str) -> float | None:
        values = self.seconds.get((stage, who))
        return statistics.median(values) if values else None

    def ratio(self, stage: str, who: str, other: str) -> float:
        mine, theirs = self.median(stage, who), self.median(stage, other)
        return mine / theirs if mine and theirs else math.nan

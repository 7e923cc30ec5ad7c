"""`Progress`: how far an operation is. Whoever starts the operation may pass a function that takes it.

It is reported once for each batch of rows, file or commit, and never for a row; without such a function nothing is
counted. Threads of one operation report one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["Counter", "Observe", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of one phase of an operation.

    Attributes:
        phase: What the operation does, such as ``writing``.
        done: How much of it is done.
        unit: What is counted, such as ``rows``.
        total: How much there is to do; None if that is not known.
    """

    phase: str
    done: int
    unit: str = "rows"
    total: int | None = None

    def __str__(self) -> str:
        """Returns it as people read it: ``writing 1,000 of 5,000 rows``."""
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.phase} {self.done:,}{of} {self.unit}"


Observe = Callable[[Progress], None]
"""Takes the progress of an operation. It has to return soon: the operation waits for it."""


class _Rows(Protocol):
    @property
    def num_rows(self) -> int: ...


Batch = TypeVar("Batch", bound=_Rows)


class Counter:
    """Counts what a phase has done, in any threads.

    Args:
        observe: Takes the progress; None if nobody looks.
        phase: As for `Progress`, as are the next ones.
        unit: What is counted.
        total: How much there is to do.
    """

    def __init__(self, observe: Observe | None, phase: str, unit: str = "rows", total: int | None = None) -> None:
        self._observe = observe
        self._phase = phase
        self._unit = unit
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Reports that so much more is done."""
        if self._observe is not None and count:
            with self._lock:
                self._done += count
                self._observe(Progress(self._phase, self._done, self._unit, self._total))

    def rows_of(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the batches, and counts the rows of each one when the next is asked for."""
        for batch in batches:
            yield batch
            self.add(batch.num_rows)

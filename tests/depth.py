"""How deep a run of the tests goes: ``make test-fast``, ``make test`` and ``make test-deep`` run fewer or more cases.

``TEST_DEPTH`` says which (``fast``, ``test`` or ``deep``; ``test`` if it is not set). ``make test-fast`` has three
cases of each parametrized test and nothing that is marked as slow. Otherwise a test depends on it in one of four ways:

- ``@pytest.mark.deep`` marks a test that only a deep run has; with ``rarely=4`` a share of a deep run has one in four
  of such tests, drawn anew: those whose servers take minutes;
- ``@pytest.mark.few(4)`` leaves four of a test's cases to ``make test``, and the others are deep (`few`);
- `sampled` chooses among the values of one parameter, for ``make test-fast``, too;
- the fixture ``depth`` (a `Depth`) chooses among the cases inside of a test, or says how often it repeats something.

What is chosen is the same in every run and a part of what a deep run has, or may have.

``TEST_SHARE=2/3`` runs a part of a deep run: the second third of the tests that go deeper than ``make test``, and in
the loops over cases inside of them a sixth of the cases, drawn anew. ``TEST_MINUTES=15`` starts no test after 15
minutes: the others are skipped, and the summary counts them.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import pytest

__all__ = ["DEPTH", "FAST_CASES", "Depth", "Share", "TimeLimit", "few", "sampled"]

T = TypeVar("T")

SEED = 20261123
FAST_CASES = 3


class Depth(StrEnum):
    """How many cases a run has."""

    FAST = "fast"
    TEST = "test"
    DEEP = "deep"

    @classmethod
    def of_this_run(cls) -> Depth:
        return cls(os.environ.get("TEST_DEPTH") or cls.TEST)

    def sample(self, cases: Iterable[T], count: int, deep: int = 1) -> list[T]:
        """Returns `count` of the cases in their order, the first and the last among them; a deep run has all.

        With `deep`, a deep run has only one in so many, from a random one on. A share of a deep run has fewer still,
        down to `count`.
        """
        found = list(cases)
        if self is Depth.DEEP:
            step = max(deep, min(len(found) // count, deep * _parts()))
            return found[random.randrange(min(step, len(found) or 1)) :: step]
        return [found[at] for at in sorted(_first(len(found), count))]

    def counting(self, every: int, deep: int = 1) -> Iterator[int]:
        """Returns 1, 2, 3 and so on, or one in `every`; in a deep run 1, and one in `deep` from a random one on.

        In a share of a deep run it is one in more, up to `every`.
        """
        if self is not Depth.DEEP:
            return itertools.count(1, every)
        step = max(deep, min(every, deep * _parts()))
        return itertools.chain([1], itertools.count(2 + random.randrange(step), step))

    def times(self, count: int, deep: int) -> int:
        """Returns how often something is repeated: `count` times, in a deep run `deep` times, in a share in between."""
        assert 0 < count < deep
        return max(count, -(-deep // _parts())) if self is Depth.DEEP else count


def sampled(cases: Iterable[Any], fast: int, test: int = 1, names: int = 1) -> list[Any]:
    """Returns the cases of a parametrized test, marked so that each depth runs a part of them; a deep run has all.

    Args:
        cases: Values, or tuples of as many values as there are names.
        fast: ``make test-fast`` runs one in so many; the others are slow.
        test: ``make test`` runs one in so many; the others are deep.
        names: How many arguments a case is.
    """
    found = list(cases)
    in_fast = _first(len(found), -(-len(found) // fast))
    in_test = _first(len(found), -(-len(found) // test)) | in_fast

    def marks(at: int) -> list[pytest.MarkDecorator]:
        return [pytest.mark.slow] * (at not in in_fast) + [pytest.mark.deep] * (at not in in_test)

    return [pytest.param(*(case if names > 1 else (case,)), marks=marks(at)) for at, case in enumerate(found)]


def few(cases: int, count: int) -> set[int]:
    """Returns which cases of a test ``make test`` runs: so many, the first and, from two on, the last among them."""
    return _first(cases, count)


def _first(length: int, count: int) -> set[int]:
    """Which positions are chosen; those of a smaller count are among those of a greater one."""
    middle = list(range(1, length - 1))
    random.Random(SEED).shuffle(middle)
    order = dict.fromkeys([0, length - 1, *middle])
    return set([at for at in order if at in range(length)][:count])


@dataclass(frozen=True)
class Share:
    """A part of the tests that go deeper than ``make test``, as in ``2/3``: the second of three."""

    part: int
    parts: int

    @classmethod
    def of_this_run(cls) -> Share | None:
        text = os.environ.get("TEST_SHARE")
        return cls(*map(int, text.split("/"))) if text else None

    def has(self, test: str, rarely: int = 1, seed: int = 0) -> bool:
        """Whether the test of this id is in it. Each test is in one part, the same in every run.

        Args:
            test: The id.
            rarely: A run has one in so many of such tests, others with another seed.
            seed: The seed of the run.
        """
        number = zlib.crc32(test.encode())
        return number % self.parts == self.part - 1 and (number // self.parts + seed) % rarely == 0


@dataclass(frozen=True)
class TimeLimit:
    """The end of a run that starts no test after some minutes: CI's, whose machine may be slow."""

    minutes: float
    ends_s: float

    @classmethod
    def of_this_run(cls) -> TimeLimit | None:
        text = os.environ.get("TEST_MINUTES")
        return cls(float(text), time.monotonic() + 60 * float(text)) if text else None

    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_s


def _parts() -> int:
    """Of how many cases inside of a test a deep run has one. A share has fewer cases than tests: CI has 45 minutes."""
    share = Share.of_this_run()
    return 1 if share is None else 2 * share.parts


DEPTH = Depth.of_this_run()

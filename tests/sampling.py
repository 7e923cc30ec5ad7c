"""Which of many alike cases the fast tests run; all of them are run by the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sampled"]


def sampled(cases: Iterable[Any], every: int, names: int = 1) -> list[Any]:
    """The cases of a parametrized test, as they are, but slow all but the first of each `every`.

    Args:
        cases: Values, or tuples of as many values as there are names.
        every: One in so many is fast.
        names: How many arguments a case is.
    """
    return [
        pytest.param(*(case if names > 1 else (case,)), marks=() if number % every == 0 else pytest.mark.slow)
        for number, case in enumerate(cases)
    ]

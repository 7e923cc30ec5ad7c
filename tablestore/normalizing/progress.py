"""How far an input was taken, and whether a batch that ends at some place goes on from there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.text import check_text

__all__ = ["Positions", "checked", "goes_on", "passed"]

Positions = Mapping[str, int]
"""Where each part of an input ends that was taken, by the part's name: such as offsets by partition. They only grow."""


def checked(positions: Mapping[Any, Any]) -> dict[str, int]:
    """The positions, if they can be kept.

    Raises:
        InvalidRequest: ``bad-positions``.
    """
    if not positions:
        raise InvalidRequest(
            "a batch needs the position at which it ends, or it could not be told from the one before when it comes "
            "again: give offsets by partition, or a number that grows as {'batch': 7}",
            code="bad-positions",
        )
    for name, at in positions.items():
        if not isinstance(name, str) or not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < 2**63:
            raise InvalidRequest(
                f"position {name!r}: {at!r}: names are texts, and positions whole numbers from 0 to 2**63 - 1",
                code="bad-positions",
            )
        check_text("the name of a position", name)
    return dict(positions)


def goes_on(known: Positions, end: Positions) -> bool:
    """Whether a batch that ends there is behind all that was taken.

    Args:
        known: How far the input was taken.
        end: Where the batch ends, in the parts of the input that it is from.
    """
    steps = [at - known.get(name, -1) for name, at in end.items()]
    return min(steps) >= 0 and max(steps) > 0


def passed(state: str, known: Positions, end: Positions) -> InvalidRequest:
    """The error for a batch that comes too late."""
    return InvalidRequest(
        f"the state at {state} has taken its input up to {dict(known)}, and none of the batches that it still knows "
        f"ended at {dict(end)}: go on from the former, or begin with another folder",
        code="positions-passed",
    )

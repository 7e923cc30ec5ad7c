"""Compares positions in an input: decides whether a batch comes after everything that was applied. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.text import check_text

__all__ = ["Positions", "checked", "goes_on", "passed"]

Positions = Mapping[str, int]
"""The ends of applied parts of an input by the parts' names, such as offsets by partition. They increase."""


def checked(positions: Mapping[Any, Any]) -> dict[str, int]:
    """Checks that positions can be stored, and returns them.

    Raises:
        InvalidRequest: ``bad-positions``.
    """
    if not positions:
        raise InvalidRequest(
            "a batch needs the positions at its end, which identify it when it is applied again: pass offsets by "
            "partition, or an increasing number such as {'batch': 7}",
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
    """Returns whether a batch with that end comes after everything that was applied.

    Args:
        known: The positions up to which the input was applied.
        end: The end of the batch, in the parts of its input.
    """
    steps = [at - known.get(name, -1) for name, at in end.items()]
    return min(steps) >= 0 and max(steps) > 0


def passed(state: str, known: Positions, end: Positions) -> InvalidRequest:
    """The error for a batch that is too late."""
    return InvalidRequest(
        f"the state at {state} has applied its input up to {dict(known)}, and none of the batches that it still knows "
        f"ended at {dict(end)}: continue from the former, or begin with another folder",
        code="positions-already-applied",
    )

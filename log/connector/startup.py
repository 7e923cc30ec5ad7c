"""Parses from options where a reader of a topic begins. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from filestore.errors import InvalidRequest

__all__ = ["Startup", "StartupMode", "specific_offsets", "startup_of"]

_PART = re.compile(r"\s*partition\s*:\s*([0-9]{1,9})\s*,\s*offset\s*:\s*([0-9]{1,18})\s*", re.ASCII)
_ARGUMENTS = {"timestamp": "scan.startup.timestamp-millis", "specific-offsets": "scan.startup.specific-offsets"}


class StartupMode(StrEnum):
    """``scan.startup.mode``."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    TIMESTAMP = "timestamp"
    SPECIFIC = "specific-offsets"


@dataclass(frozen=True, slots=True)
class Startup:
    """The position at which a reader begins.

    Attributes:
        mode: The kind of the position.
        timestamp_ms: With ``timestamp``.
        offsets: With ``specific-offsets``: by partition; others begin with the earliest.
    """

    mode: StartupMode
    timestamp_ms: int | None = None
    offsets: tuple[tuple[int, int], ...] = ()


def specific_offsets(text: str) -> tuple[tuple[int, int], ...]:
    """Parses partitions and offsets from ``partition:0,offset:42;partition:1,offset:300``, ascending."""
    found: dict[int, int] = {}
    for part in text.split(";"):
        match = _PART.fullmatch(part)
        if match is None or int(match[1]) in found:
            raise ValueError("each partition once, as in 'partition:0,offset:42;partition:1,offset:300'")
        found[int(match[1])] = int(match[2])
    return tuple(sorted(found.items()))


def startup_of(values: Mapping[str, Any]) -> Startup:
    """Makes it from the values of the options ``scan.startup.*``.

    Raises:
        InvalidRequest: ``startup-mode``: a mode lacks its argument, or there is one that it does not take.
    """
    mode = StartupMode(values["scan.startup.mode"])
    for wanted, name in _ARGUMENTS.items():
        if (values[name] is not None) != (mode == wanted):
            problem = "needs it" if mode == wanted else "does not take it: leave it out, or say scan.startup.mode = "
            raise InvalidRequest(
                f"option {name}: scan.startup.mode = {mode} {problem}{'' if mode == wanted else wanted}",
                code="startup-mode",
            )
    return Startup(mode, values[_ARGUMENTS["timestamp"]], values[_ARGUMENTS["specific-offsets"]] or ())

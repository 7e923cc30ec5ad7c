"""Which offsets a reader reads: decided from what the broker says of a topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from filestore.errors import NotFound
from log.connectors.startup import Startup, StartupMode

__all__ = ["PartitionRange", "starting_offsets"]


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of one partition, from `start` to below `end`. Picklable."""

    partition: int
    start: int
    end: int


def starting_offsets(
    startup: Startup, first: Mapping[int, int], last: Mapping[int, int], after: Mapping[int, int]
) -> dict[int, int]:
    """Where a reader begins, by partition.

    Args:
        startup: As the table or the reader says.
        first: The earliest offset of each partition.
        last: The end of each partition.
        after: With ``timestamp``: the first offset whose message is not older; below 0 if there is none.

    Raises:
        NotFound: ``offset-gone``: specific offsets outside of what there is.
    """
    match startup.mode:
        case StartupMode.EARLIEST:
            return dict(first)
        case StartupMode.LATEST:
            return dict(last)
        case StartupMode.TIMESTAMP:
            return {p: after[p] if after.get(p, -1) >= 0 else last[p] for p in first}
    asked = dict(startup.offsets)
    for partition, offset in asked.items():
        if partition not in first:
            raise NotFound(
                f"option scan.startup.specific-offsets names partition {partition}, and the topic has "
                f"{', '.join(map(str, sorted(first)))}",
                code="offset-gone",
            )
        if not first[partition] <= offset <= last[partition]:
            raise NotFound(
                f"option scan.startup.specific-offsets: offset {offset} is not in partition {partition}, which goes "
                f"from {first[partition]} to {last[partition]} now: begin with the earliest, or correct it",
                code="offset-gone",
            )
    return dict(first) | asked

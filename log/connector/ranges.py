"""Decides which offsets a reader reads, by the offsets that a topic has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from filestore.errors import NotFound
from log.connector.startup import Startup, StartupMode

__all__ = ["PartitionRange", "admitted", "parts", "starting_offsets"]


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of one partition, from `start` to below `end`. Picklable."""

    partition: int
    start: int
    end: int


def starting_offsets(
    startup: Startup, first: Mapping[int, int], last: Mapping[int, int], after: Mapping[int, int]
) -> dict[int, int]:
    """Returns where a reader begins, by partition.

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


def parts(ranges: Iterable[PartitionRange], most: int) -> tuple[PartitionRange, ...]:
    """Splits ranges into ranges of at most so many offsets, for parallel readers; empty ranges are left out.

    Those of one partition follow each other in order, so the rows of all ranges, one after the other, have each key's
    changes in order.
    """
    return tuple(
        PartitionRange(r.partition, start, min(start + most, r.end))
        for r in sorted(ranges, key=lambda r: r.partition)
        for start in range(r.start, r.end, most)
    )


def admitted(starts: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """Decides where a batch ends in each partition if it may take so many offsets of all partitions together.

    Each partition that has any left is given one, those with most of them first, and then the rest goes by what they
    have left: none is starved, and all reach their ends at about the same time.

    Args:
        starts: Where the batch begins in each partition.
        ends: Where each of these partitions ends now; one before its start counts as one without anything.
        most: The limit, above zero; none if None.
    """
    left = {p: max(0, ends[p] - start) for p, start in starts.items()}
    if most is None or sum(left.values()) <= most:
        return {p: start + left[p] for p, start in starts.items()}
    waiting = sorted((p for p in left if left[p]), key=lambda p: (-left[p], p))[:most]
    spare = most - len(waiting)
    # spare is nothing unless all that wait have been given one, and then there is more beside that than is spare
    beside = sum(left[p] - 1 for p in waiting) or 1
    shares = {p: divmod(spare * (left[p] - 1), beside) for p in waiting}
    over = spare - sum(share for share, _ in shares.values())
    favoured = set(sorted(waiting, key=lambda p: (-shares[p][1], p))[:over])
    return {p: start + (1 + shares[p][0] + (p in favoured) if p in shares else 0) for p, start in starts.items()}

"""Decides by a version, the table's options and the time which partitions have expired. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

from filestore.delta.state import TableState
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Partition, PendingRun
from filestore.model.partition_set import PartitionSet
from filestore.model.partition_time import partition_time

__all__ = ["PartitionAge", "expired_partitions", "partition_ages"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PartitionAge:
    """The age of a partition.

    Attributes:
        time: The time of its values, or of its newest file. None if its values are no time.
        expires: The time after which it expires; None if it never does.
    """

    time: datetime | None
    expires: datetime | None


def partition_ages(state: TableState) -> dict[Partition, PartitionAge]:
    """Returns the age of each partition by ``partition.expiration-strategy``; its pending runs count as files."""
    held: Iterable[DataFile | PendingRun] = chain(state.files, state.pending)
    files: dict[Partition, list[DataFile | PendingRun]] = {}
    for file in held:
        files.setdefault(file.slot.partition, []).append(file)
    keep: timedelta | None = state.definition.options["partition.expiration-time"]
    times = _times(files, state.definition)
    return {partition: PartitionAge(time, _later(time, keep)) for partition, time in times.items()}


def expired_partitions(state: TableState, now_ms: int) -> PartitionSet:
    """Returns the partitions whose time is more than ``partition.expiration-time`` before a time.

    A partition whose values are no time stays, as it does in Paimon.

    Args:
        state: The version.
        now_ms: The time, in milliseconds since 1970.
    """
    now = _EPOCH + timedelta(milliseconds=now_ms)
    ages = partition_ages(state) if state.definition.partition_by else {}
    return PartitionSet.of(p for p, age in ages.items() if age.expires is not None and age.expires < now)


def _times(
    files: Mapping[Partition, Iterable[DataFile | PendingRun]], definition: TableDefinition
) -> dict[Partition, datetime | None]:
    options = definition.options
    if options["partition.expiration-strategy"] == "update-time" or not definition.partition_by:
        newest = {partition: max(file.modified_ms for file in some) for partition, some in files.items()}
        return {partition: _EPOCH + timedelta(milliseconds=ms) for partition, ms in newest.items()}
    types = [definition.schema.column(name).type for name in definition.partition_by]
    pattern, formatter = options["partition.timestamp-pattern"], options["partition.timestamp-formatter"]
    return {partition: partition_time(partition, types, pattern, formatter) for partition in files}


def _later(time: datetime | None, keep: timedelta | None) -> datetime | None:
    """Returns a later time; None also if Python's calendar cannot represent it."""
    if time is None or keep is None:
        return None
    try:
        return time + keep
    except OverflowError:
        return None

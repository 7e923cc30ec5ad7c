"""Decides what an overwrite replaces: the whole table, named partitions, or those that its rows have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot
from filestore.model.partition_set import ALL_PARTITIONS, PartitionSet
from filestore.rows.partitions import partition_set, partitions_of

__all__ = ["Drop", "Overwrite", "Replacement", "check_condition", "only_in", "parse_spec", "replacement"]

Overwrite: TypeAlias = bool | str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The argument of users: False, True (the whole table), ``"dynamic"`` (the partitions that the rows have), or values of
partition columns, such as ``{"day": "2026-01-31"}``, or a list of those (these partitions)."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The contents that an overwrite removes when it commits.

    Attributes:
        partitions: The partitions that are emptied; None for those that the rows have.
    """

    partitions: PartitionSet | None

    @property
    def bound(self) -> PartitionSet | None:
        """The partitions in which all rows must be; None if rows of all partitions are allowed."""
        return None if self.partitions is None or self.partitions.whole_table else self.partitions

    def of(self, slots: Iterable[Slot]) -> PartitionSet:
        """Returns the partitions that rows in those slots replace."""
        return PartitionSet.of(slot.partition for slot in slots) if self.partitions is None else self.partitions


@dataclass(frozen=True, slots=True)
class Drop:
    """Partitions to drop.

    Attributes:
        partitions: The partitions.
        unless_changed: Whether the choice has to be made again if others change rows in them before the commit.
    """

    partitions: PartitionSet
    unless_changed: bool = False

    def touches(self, state: TableState) -> frozenset[Slot]:
        """Returns the slots where a change invalidates the choice: all buckets, as a writer may fill an empty one."""
        if not self.unless_changed:
            return frozenset()
        buckets = range(state.definition.buckets)
        chosen = {p for p in state.files.partitions | state.pending.partitions if p in self.partitions}
        return frozenset(Slot(partition, bucket) for partition in chosen for bucket in buckets)


def replacement(overwrite: Overwrite, definition: TableDefinition) -> Replacement | None:
    """Interprets the argument ``overwrite``; returns None for a write that replaces nothing.

    In an unpartitioned table ``"dynamic"`` is the whole table, as in Delta.

    Raises:
        InvalidRequest: ``bad-overwrite``, or those of `filestore.rows.partitions.partition_set`.
    """
    match overwrite:
        case bool():
            return Replacement(ALL_PARTITIONS) if overwrite else None
        case "dynamic":
            return Replacement(None if definition.partition_by else ALL_PARTITIONS)
        case Mapping():
            return Replacement(partition_set([overwrite], definition))
        case Sequence() if not isinstance(overwrite, str) and all(isinstance(spec, Mapping) for spec in overwrite):
            return Replacement(partition_set(overwrite, definition))
    raise InvalidRequest(
        f"overwrite={overwrite!r}: give True (the whole table), 'dynamic' (the partitions that the rows have) or "
        "values of partition columns, such as {'day': '2026-01-31'}",
        code="bad-overwrite",
    )


def parse_spec(text: str) -> dict[str, str | None]:
    """Parses values of partition columns from ``day=2026-01-31,region=eu``, or from a JSON object, which can have null.

    Raises:
        InvalidRequest: ``bad-partition``.
    """
    if text.lstrip().startswith("{"):
        try:
            spec = json.loads(text, strict=False)  # a parameter of SQL may have any character
        except ValueError as error:
            raise _bad_spec(text) from error
        if not all(value is None or isinstance(value, str | int) for value in spec.values()):
            raise _bad_spec(text)
        return {name: _spelled(value) for name, value in spec.items()}
    pairs = [part.partition("=") for part in text.split(",")]
    spec = {name.strip(): value.strip() for name, _, value in pairs}
    if len(spec) < len(pairs) or not all(name.strip() and equals for name, equals, _ in pairs):
        raise _bad_spec(text)
    return spec


def _spelled(value: str | int | None) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _bad_spec(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"partition {text!r}: write COLUMN=VALUE,COLUMN=VALUE or a JSON object of texts, whole numbers, booleans and "
        "nulls",
        code="bad-partition",
    )


def only_in(
    batches: Iterable[pa.RecordBatch], partition_by: Sequence[str], wanted: PartitionSet
) -> Iterator[pa.RecordBatch]:
    """Yields the batches, and checks that all rows are in the wanted partitions.

    Raises:
        InvalidRequest: ``outside-partitions``: a row is in another partition.
    """
    for batch in batches:
        for partition in partitions_of(pa.Table.from_batches([batch]), partition_by):
            if partition not in wanted:
                raise InvalidRequest(
                    f"rows of partition {dict(partition)} are not in the partitions that the overwrite names, "
                    f"{wanted.to_json()}: filter them out, or take overwrite='dynamic'",
                    code="outside-partitions",
                )
        yield batch


def check_condition(definition: TableDefinition, overwrite: Overwrite) -> None:
    """Refuses a condition (``if_version``) where rows cannot be distinguished.

    Raises:
        InvalidRequest: ``no-primary-key``.
    """
    if not definition.primary_key and overwrite is False:
        raise InvalidRequest(
            "if_version asks whether the rows of the written keys have changed, and this table has no primary key: "
            "leave it out, or overwrite the partitions that were read",
            code="no-primary-key",
        )

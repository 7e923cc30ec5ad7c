"""Sets of partitions, which are chosen by the values of some or all partition columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from filestore.model.files import Partition

__all__ = ["ALL_PARTITIONS", "NO_PARTITIONS", "PartitionSet"]


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """The partitions that match at least one of some specs.

    Attributes:
        specs: Values of partition columns, in the table's order. A spec that lacks columns matches all partitions with
            the values that it has, so an empty spec matches the whole table.
    """

    specs: frozenset[Partition]
    _columns: frozenset[frozenset[str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        columns = frozenset(frozenset(name for name, _ in spec) for spec in self.specs)
        object.__setattr__(self, "_columns", columns)

    @classmethod
    def of(cls, specs: Iterable[Partition]) -> PartitionSet:
        """Makes the set of those specs."""
        return cls(frozenset(specs))

    def __contains__(self, partition: Partition) -> bool:
        return any(tuple(pair for pair in partition if pair[0] in columns) in self.specs for columns in self._columns)

    def __bool__(self) -> bool:
        return bool(self.specs)

    @property
    def whole_table(self) -> bool:
        """Returns whether it contains every partition of any table."""
        return () in self.specs

    def to_json(self) -> list[dict[str, str | None]]:
        """Encodes the specs as objects, in an order that depends only on their values."""
        return [dict(spec) for spec in sorted(self.specs, key=_null_first)]

    @classmethod
    def from_json(cls, specs: Sequence[Mapping[str, str | None]], partition_by: Sequence[str]) -> PartitionSet:
        """Reverses `to_json`, for a table with those partition columns."""
        return cls.of(tuple((name, spec[name]) for name in partition_by if name in spec) for spec in specs)


def _null_first(spec: Partition) -> list[tuple[str, bool, str]]:
    return [(name, value is not None, value or "") for name, value in spec]


NO_PARTITIONS = PartitionSet.of(())
ALL_PARTITIONS = PartitionSet.of([()])
ALL_PARTITIONS = PartitionSet.of([()])

"""The kinds of table that are simulated, and how a few lines of Python apply changes to their rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from filestore.model.definition import TableDefinition
from tests.tables import define

__all__ = ["SHAPES", "Held", "Row", "Shape"]

Row = dict[str, Any]
Key = tuple[Any, ...]

DAY_MS = 86_400_000
_KEYS, _PARTITIONS = range(12), ("x", "y")
_COLUMNS = "id BIGINT, p STRING, s INT, v STRING, n BIGINT"


@dataclass(frozen=True, slots=True)
class Held:
    """What a version contains.

    Attributes:
        rows: The rows by key.
        columns: The names of the columns.
        tombstones: For each key the sequence and time of its last delete.
        doubtful: Rows that may be there: only the table knows when exactly it forgot a delete.
    """

    rows: dict[Key, Row] = field(default_factory=dict)
    columns: tuple[str, ...] = ("id", "p", "s", "v", "n")
    tombstones: dict[Key, tuple[int | None, int]] = field(default_factory=dict)
    doubtful: dict[Key, Row] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of table.

    Attributes:
        name: Its name.
        engine: The merge engine.
        key: The primary key.
        partitioned: Whether it is partitioned by ``p``.
        sequence: Whether ``s`` orders the rows of a key.
        later: Whether writes leave pending runs.
        remembers: For how long deletes are remembered, in days.
        options: More options of the table.
    """

    name: str
    engine: str = "deduplicate"
    partitioned: bool = False
    sequence: bool = False
    later: bool = False
    remembers: int = 36_500
    options: dict[str, object] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        return ("id", "p") if self.partitioned else ("id",)

    def define(self) -> TableDefinition:
        given: dict[str, object] = {
            "bucket": 2,
            "row__group_rows": 3,
            "checkpoint_interval": 5,
            "merge__engine": self.engine,
            "num__sorted__run_compaction__trigger": 3,
            "snapshot_num__retained_min": 2,
            "snapshot_num__retained_max": 8,
            "snapshot_time__retained": "2 h",
            "consumer_expiration__time": "3 d",
        }
        if self.sequence:
            given |= {"sequence_field": "s", "sequence_tombstone__retention": f"{self.remembers} d"}
        if self.later:
            given["write__mode"] = "merge-on-read"
        return define(_COLUMNS, self.key, ("p",) if self.partitioned else (), **given, **self.options)

    def row(self, dice: random.Random, name: str, *, deletes: bool) -> Row:
        """Returns a change. Whole numbers in ``n`` reveal a change that was merged twice."""
        kind = "-D" if deletes and dice.random() < 0.25 else "+U"
        return {
            "id": dice.choice(_KEYS),
            "p": dice.choice(_PARTITIONS),
            "s": dice.choice([None, *range(8)]),
            "v": dice.choice([None, name, name]),
            "n": dice.choice([None, *range(1, 9)]),
            "_kind": kind,
        }

    def ignores(self, row: Row) -> bool:
        """Returns whether a write leaves a change out: it commits nothing if it has no others."""
        return bool(row["_kind"] == "-D" and self.options.get("ignore__delete"))

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def merged(self, held: Held, changes: Sequence[Row], now_ms: int) -> Held:
        """Applies changes in their order. Columns that they lack are null."""
        rows, tombstones, doubtful = dict(held.rows), dict(held.tombstones), dict[Key, Row]()
        for row in self._reduced(changes):
            key, kind = self.key_of(row), row["_kind"]
            whole = {name: row.get(name) for name in held.columns}
            if self.engine == "deduplicate":
                self._replace(rows, tombstones, doubtful, key, whole, kind, now_ms)
            elif kind == "-D":
                if self.options.get("partial__update_remove__record__on__delete"):
                    rows.pop(key, None)
            else:
                rows[key] = self._valued(rows.get(key), whole)
        return replace(held, rows=rows, tombstones=tombstones, doubtful=doubtful)

    def _reduced(self, changes: Sequence[Row]) -> Sequence[Row]:
        """Keeps one row for each key of a batch, unless the engine counts each of them."""
        if self.engine != "deduplicate":
            return changes
        best: dict[Key, Row] = {}
        for row in changes:
            key = self.key_of(row)
            if key not in best or self._rank(row["s"]) >= self._rank(best[key]["s"]):
                best[key] = row
        return list(best.values())

    def _rank(self, sequence: int | None) -> int:
        if not self.sequence:
            return 0
        return -1 if sequence is None else sequence

    def _replace(
        self,
        rows: dict[Key, Row],
        tombstones: dict[Key, tuple[int | None, int]],
        doubtful: dict[Key, Row],
        key: Key,
        row: Row,
        kind: str,
        now_ms: int,
    ) -> None:
        rank = self._rank(row["s"])
        if key in rows and rank < self._rank(rows[key]["s"]):
            return
        deleted_at, when = tombstones.get(key, (None, 0))
        if kind == "-D":
            rows.pop(key, None)
            if self.sequence and rank >= self._rank(deleted_at):
                tombstones[key] = (row["s"], now_ms)
        elif rank >= self._rank(deleted_at):
            rows[key] = row
        elif now_ms - when > (self.remembers - 1) * DAY_MS:
            doubtful[key] = row

    def _valued(self, stored: Row | None, row: Row) -> Row:
        if stored is None:
            return row
        merged = {name: stored.get(name) if value is None else value for name, value in row.items()}
        if self.engine == "aggregation" and stored["n"] is not None and row["n"] is not None:
            merged["n"] = stored["n"] + row["n"]
        return merged


_VALUES: dict[str, object] = {"fields_n_aggregate__function": "sum", "ignore__delete": "true"}
_REMOVES: dict[str, object] = {"partial__update_remove__record__on__delete": "true"}

SHAPES = {
    shape.name: shape
    for shape in (
        Shape("deduplicate", options={"target__file__size": "1 b"}),
        Shape("deduplicate-later", later=True),
        Shape("sequence", sequence=True),
        Shape("sequence-forgets", sequence=True, remembers=2),
        Shape("sequence-later", sequence=True, later=True),
        Shape("partitions", partitioned=True, sequence=True),
        Shape("partitions-later", partitioned=True, later=True, options={"target__file__size": "1 b"}),
        Shape("change-data", options={"changelog__producer": "lookup"}),
        Shape("partial-update", "partial-update", options=_REMOVES),
        Shape("partial-update-later", "partial-update", later=True, options=_REMOVES),
        Shape("aggregation", "aggregation", options=_VALUES),
        Shape("aggregation-later", "aggregation", partitioned=True, later=True, options=_VALUES),
    )
}

"""Compares a normalizer with a dict: computes the changes of a batch of upserts from the rows before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from filestore.ambient import system_ambient
from tablestore.normalizing.changes import NormalizedBatch
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.spec import NormalizerSpec
from tests.tables import read

__all__ = ["BUSY", "Known", "Upsert", "after", "between", "changed", "listed", "replayed", "rows_of", "spec"]

Upsert = tuple[str, int, int | None]
"""A kind, a key and a value."""
Known = Mapping[int, int | None]

BUSY = {
    "compaction.in-writer": "false",
    "num-sorted-run.compaction-trigger": "2",
    "snapshot.num-retained.min": "8",
    "checkpoint.interval": "3",
}
"""Compaction, checkpoints and expiry all the time, each in its place: what a test of faults can count on."""


def spec(folder: Path, **options: str) -> NormalizerSpec:
    return NormalizerSpec.of(str(folder), "id BIGINT, v INT", ["id"], options=BUSY | options)


def rows_of(batch: Iterable[Upsert]) -> pa.Table:
    listed = [{"id": key, "v": value, "_kind": kind} for kind, key, value in batch]
    return pa.Table.from_pylist(
        listed, schema=pa.schema([("id", pa.int64()), ("v", pa.int32()), ("_kind", pa.string())])
    )


def after(known: Known, batch: Iterable[Upsert]) -> Known:
    """The rows when a batch was taken: of a key the last one counts."""
    rows = dict(known)
    for kind, key, value in batch:
        if kind in ("+I", "+U"):
            rows[key] = value
        else:
            rows.pop(key, None)
    return rows


def between(before: Known, now: Known) -> list[Upsert]:
    """The complete changes from some rows to others, by key."""
    changes: list[Upsert] = []
    for key in sorted({*before, *now}):
        if key not in now:
            changes.append(("-D", key, before[key]))
        elif key not in before:
            changes.append(("+I", key, now[key]))
        elif before[key] != now[key]:
            changes += [("-U", key, before[key]), ("+U", key, now[key])]
    return changes


def changed(batch: NormalizedBatch) -> list[Upsert]:
    return [upsert for rows in batch for upsert in listed(rows)]


def listed(rows: pa.RecordBatch) -> list[Upsert]:
    return [(row["_kind"], row["id"], row["v"]) for row in rows.to_pylist()]


def replayed(before: Known, changes: Sequence[Upsert]) -> Known:
    """What someone has who applies changes; each row that leaves must be the one that is there."""
    rows: dict[int, Any] = dict(before)
    for kind, key, value in changes:
        if kind in ("-U", "-D"):
            assert rows.pop(key) == value
        else:
            assert key not in rows
            rows[key] = value
    return rows


def known(normalizer: Normalizer) -> Known:
    """The rows that its state holds."""
    return {row["id"]: row["v"] for row in read(normalizer.spec.opened(system_ambient()))}

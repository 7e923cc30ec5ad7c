"""Compares change data with what it must be: the rows before plus the changes are the rows after, for each range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import deltalake
import pyarrow as pa

from filestore.table import FileStore
from tests.tables import read, storage_at

__all__ = ["Changes", "assert_exact", "by_deltalake", "by_version", "changes_between"]

Row = Mapping[str, Any]
Changes = Counter[tuple[str, str]]
"""How often each type of change happens to each row."""

_OWN = ("_change_type", "_commit_version", "_commit_timestamp")


def _row(row: Row) -> str:
    return repr(sorted((name, value) for name, value in row.items() if name not in _OWN))


def by_version(rows: Sequence[Row]) -> dict[int, Changes]:
    """What a reader of change data gave."""
    found: dict[int, Changes] = {}
    for row in rows:
        found.setdefault(row["_commit_version"], Counter())[row["_change_type"], _row(row)] += 1
    return found


def by_deltalake(store: FileStore, first: int = 1, last: int | None = None) -> dict[int, Changes]:
    """The changes as delta-rs reads them, of versions that have none too."""
    last = store.state().version if last is None else last
    found: dict[int, Changes] = {version: Counter() for version in range(first, last + 1)}
    return found | by_version(_load_cdf(store.location, first, last)) if found else found


def _load_cdf(location: str, first: int, last: int) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(location, storage_options=storage_at(location).delta_options(location) or None)
    found = pa.table(table.load_cdf(starting_version=first, ending_version=last).read_all())
    for field in pa.schema(table.schema().to_arrow()):
        at = found.schema.get_field_index(field.name)
        found = found.set_column(at, field.name, found.column(at).cast(field.type))
    return found.to_pylist()  # type: ignore[no-any-return]


def changes_between(before: Sequence[Row], after: Sequence[Row], key: Sequence[str]) -> Changes:
    """The exact changes from one state to another."""
    old, new = ({tuple(row[name] for name in key): row for row in rows} for rows in (before, after))
    changes: Changes = Counter()
    for at in {*old, *new}:
        if at not in new:
            changes["delete", _row(old[at])] += 1
        elif at not in old:
            changes["insert", _row(new[at])] += 1
        elif _row(old[at]) != _row(new[at]):
            changes["update_preimage", _row(old[at])] += 1
            changes["update_postimage", _row(new[at])] += 1
    return changes


def assert_exact(store: FileStore, found: Mapping[int, Changes]) -> None:
    """The changes of each version lead from the state before it to the state after it, and are no more than that."""
    before: Sequence[Row] = []
    for version in range(1, store.state().version + 1):
        after = read(store, version)
        if version in found:
            wanted = changes_between(before, after, store.state().definition.primary_key)
            got = found[version]
            assert got == wanted, f"version {version}: too much {got - wanted}, missing {wanted - got}"
        before = after

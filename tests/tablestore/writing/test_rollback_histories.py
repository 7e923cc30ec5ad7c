"""Any version of any history can be restored, compared with a dict: writes, deletes, compactions, changed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablestore import Store, Table
from tests.depth import DEPTH
from tests.tables import in_order, read_deltalake
from tests.warehouses import assert_whole, changes, orphans, replay, rows, to_arrow, warehouse

Key = tuple[int, str]
Row = dict[str, Any]
COLUMNS = "id BIGINT, p STRING, s BIGINT, v DOUBLE, n INT"


@dataclass(slots=True)
class Version:
    """What a version contains: rows by key, by the columns' first names, and the highest sequence of each key."""

    rows: dict[Key, Row] = field(default_factory=dict)
    seen: dict[Key, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=lambda: {name: name for name in ("id", "p", "s", "v", "n")})

    def copy(self) -> Version:
        return Version(dict(self.rows), dict(self.seen), dict(self.names))

    def back(self, then: Version) -> Version:
        return Version(dict(then.rows), dict(then.seen), dict(self.names))

    def shown(self) -> list[Row]:
        return in_order({name: row.get(first) for first, name in self.names.items()} for row in self.rows.values())

    def put(self, key: Key, row: Row | None, sequence: int | None) -> None:
        if sequence is not None:
            if sequence < self.seen.get(key, sequence):
                return
            self.seen[key] = sequence
        self.rows.pop(key, None)
        if row is not None:
            self.rows[key] = row


@dataclass(slots=True)
class Model:
    """A table and the dicts that it must equal."""

    table: Table
    ordered: bool
    partitioned: bool
    mode: str
    now: Version = field(default_factory=Version)
    history: list[Version] = field(default_factory=lambda: [Version()])
    given: int = 0

    def do(self, kind: str, drawn: Iterable[tuple[int, str, int, float | None, bool]], number: int) -> None:
        before = self.now.copy()
        getattr(self, f"_{kind}")(list(drawn), number)
        newest = self.table.filestore.state().version
        while len(self.history) < newest:
            self.history.append(before)  # a fold that had to precede it
        if len(self.history) == newest:
            self.history.append(self.now.copy())

    def _write(self, drawn: list[Any], _: int) -> None:
        self._put(drawn, overwrite=False)

    def _overwrite(self, drawn: list[Any], _: int) -> None:
        self.now.rows.clear()
        self.now.seen.clear()
        self._put(drawn, overwrite=True)

    def _put(self, drawn: list[Any], overwrite: bool) -> None:
        found: list[Row] = []
        for number, text, sequence, value, deleted in drawn:
            p = text if self.partitioned else "x"
            row = {"id": number, "p": p, "s": sequence, "v": value, "n": number}
            row |= {name: number for name in self.now.names if name not in row}
            row = {name: value for name, value in row.items() if name in self.now.names}
            self.now.put((number, p), None if deleted else row, sequence if self.ordered else None)
            renamed = {self.now.names[name]: value for name, value in row.items()}
            found.append(renamed | {"_kind": "-D" if deleted else "+U"})
        self.table.write(to_arrow(self.table, found), overwrite=overwrite)

    def _compact(self, _: object, number: int) -> None:
        self.table.compact(full=number % 2 == 0)

    def _rollback(self, _: object, number: int) -> None:
        version = number % len(self.history)
        self.table.rollback(version)
        self.now = self.now.back(self.history[version])
        assert rows(self.table) == self.now.shown()

    def _alter(self, _: object, number: int) -> None:
        self.given += 1
        named, names = f"c{self.given}", self.now.names
        anywhere: list[Callable[[], str]] = [
            lambda: f"ADD COLUMN {names.setdefault(named, named)} BIGINT",
            lambda: f"ALTER COLUMN {names['v']} COMMENT 'a{number}'",
            lambda: f"ALTER COLUMN {names['v']} FIRST",
        ]
        in_metadata: list[Callable[[], str]] = [
            lambda: f"RENAME COLUMN {names['v']} TO {self._renamed('v', named)}",
            lambda: f"ALTER COLUMN {names['n']} TYPE BIGINT" if "n" in names else "COMMENT 'n is gone'",
            lambda: f"DROP COLUMN {names.pop('n')}" if "n" in names else f"COMMENT '{number}'",
        ]
        offered = anywhere + (in_metadata if self.mode == "metadata" else [])
        self.table.alter(offered[number % len(offered)]())

    def _renamed(self, first: str, name: str) -> str:
        self.now.names[first] = name
        return name


STEP = st.tuples(
    st.sampled_from(["write", "write", "write", "overwrite", "compact", "alter", "rollback"]),
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.sampled_from(["x", "y z"]),
            st.integers(0, 9),
            st.sampled_from([None, 0.5, 2.0]),
            st.booleans(),
        ),
        max_size=6,
    ),
    st.integers(0, 20),
)


def made(store: Store, mode: str, write_mode: str, *, partitioned: bool, ordered: bool) -> Table:
    options = {"bucket": "2", "row-group.rows": "1024", "schema.evolution-mode": mode, "write-mode": write_mode}
    if ordered:
        options["sequence.field"] = "s"
    if ordered and write_mode == "merge-on-read":
        options["log.system"] = "none"
    return store.create_table(
        "shop.t",
        COLUMNS,
        primary_key=("id", "p") if partitioned else ("id",),
        partition_by=("p",) if partitioned else (),
        options=options,
    )


@pytest.mark.slow
@settings(max_examples=DEPTH.times(4, deep=25))
@given(
    st.lists(STEP, min_size=2, max_size=9),
    st.sampled_from(["rewrite", "metadata"]),
    st.sampled_from(["merge-on-write", "merge-on-read"]),
    st.booleans(),
    st.booleans(),
)
def test_any_version_can_be_restored_in_any_history(
    steps: list[Any], mode: str, write_mode: str, partitioned: bool, ordered: bool
) -> None:
    with warehouse() as store:
        table = made(store, mode, write_mode, partitioned=partitioned, ordered=ordered)
        model = Model(table, ordered, partitioned, mode)
        late = [(key, "x", 4, 7.0, False) for key in range(8)]
        for kind, drawn, number in [*steps, ("rollback", [], 1), ("write", late, 0), ("rollback", [], 2)]:
            model.do(kind, drawn, number)
        for version, expected in enumerate(model.history):
            assert rows(table, version) == expected.shown(), version
        assert_leads_to(table, model.now.shown())


def assert_leads_to(table: Table, expected: list[Row]) -> None:
    """Asserts the rows of all readers that support changed columns."""
    table.compact(full=True)
    if not table.definition.features:
        assert assert_whole(table, leftovers=False) == expected
        return
    assert {finding.code for finding in table.examine().findings} <= {"dead-file"}
    assert orphans(table) == []
    assert rows(table) == expected
    if table.definition.options["log.system"] != "none":
        assert replay(changes(table, version=0), table.definition.primary_key) == expected
    if table.definition.features == {"columnMapping"}:
        assert in_order(read_deltalake(table.location)) == expected

"""Runs that were written before a column was widened: they are read, merged, checked and overlaid as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.checks.pending import check_run
from filestore.checks.report import Findings, Invariant
from filestore.model.changes import RenameColumn, WidenColumn
from filestore.model.snapshot import Operation
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from tablestore import Store, Table
from tests.opened import again
from tests.tables import assert_healthy, in_order, read_deltalake
from tests.tablestore.test_evolved_tables import operations, racing
from tests.tablestore.test_merge_on_read import overlay_of
from tests.warehouses import assert_whole, changes, replay, rows

LATER = {"write-mode": "merge-on-read"}
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "log.system": "none"}
MODES = ("rewrite", "metadata")


def make(store: Store, columns: str = "id INT, v TINYINT", **options: str) -> Table:
    return store.create_table("shop.t", columns, primary_key=["id"], options=options)


def put(table: Table, *given: Sequence[Any]) -> int:
    names = [*table.schema.names, "_kind"][: len(given[0])]
    types = {field.name: field.type for field in table.schema} | {"_kind": pa.string()}
    listed = zip(*given, strict=True)
    return table.write(pa.table({n: pa.array(c, types[n]) for n, c in zip(names, listed, strict=True)})).version


def narrow(store: Store, mode: str = "rewrite", **options: str) -> Table:
    return make(store, "id INT, v TINYINT", **LATER, **{"schema.evolution-mode": mode}, **options)


def test_a_run_that_comes_while_files_are_written_anew_stays(store: Store) -> None:
    table = narrow(store, **SUMS)
    put(table, (1, 100))
    table.compact(full=True)
    put(table, (1, 100))
    others = racing(table, lambda t: put(t, (1, 50), (2, 2)), lambda t: t.write(pa.table({"id": [3], "v": [3]})))
    alter(others, [WidenColumn("v", "INT")], TableRewrite)
    assert operations(table)[-3:] == [Operation.WRITE, Operation.WRITE, Operation.ALTER]
    assert len(table.filestore.state().pending) == 3
    assert assert_whole(table) == [{"id": 1, "v": 250}, {"id": 2, "v": 2}, {"id": 3, "v": 3}]
    table.compact(full=True)
    assert_whole(table, leftovers=False)


def test_a_run_that_is_written_while_the_column_is_widened_is_written_again(store: Store) -> None:
    table = narrow(store, **SUMS)
    put(table, (1, 100))
    storage = racing(table, lambda t: t.alter("ALTER COLUMN v TYPE SMALLINT")).storage
    late = again(table, storage=storage)
    put(late, (1, 100))
    assert operations(table) == [Operation.CREATE, Operation.WRITE, Operation.ALTER, Operation.WRITE]
    assert assert_whole(table, leftovers=False) == [{"id": 1, "v": 200}]


def test_a_fold_while_the_column_is_widened(store: Store) -> None:
    table = narrow(store)
    put(table, (1, 1), (2, 2))
    alter(racing(table, lambda t: fold_table(t.filestore, full=True)), [WidenColumn("v", "INT")], TableRewrite)
    assert operations(table)[-2:] == [Operation.FOLD, Operation.ALTER]
    assert assert_whole(table, leftovers=False) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


def test_a_rename_folds_what_is_narrower_still(store: Store) -> None:
    table = narrow(store, **SUMS)
    put(table, (1, 100))
    put(table, (1, 100))
    table.alter("ALTER COLUMN v TYPE SMALLINT", "ADD COLUMN n INT")
    assert operations(table)[-1:] == [Operation.ALTER]
    table.alter(RenameColumn("n", "m"))
    assert operations(table)[-2:] == [Operation.FOLD, Operation.ALTER]
    assert assert_whole(table) == [{"id": 1, "v": 200, "m": None}]


def test_the_doctor_takes_narrower_types_whether_or_not_it_knows_the_past(store: Store) -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "checkpoint.interval": "2"}
    table = narrow(store, **kept)
    put(table, (1, 1))
    table.compact(full=True)
    put(table, (1, 2))
    table.alter("ALTER COLUMN v TYPE SMALLINT")
    table.alter("ALTER COLUMN v TYPE BIGINT")
    assert_healthy(table.filestore)
    for number in range(4):
        put(table, (number, 2**40))
    table.expire()
    assert table.snapshots()[-1].version > 3
    assert_healthy(table.filestore)
    (first, *_) = table.filestore.state().pending
    path = f"{table.location}/{first.path}"
    written = pq.read_table(path)
    for kind in (pa.string(), pa.float64()):
        pq.write_table(written.set_column(1, "v", written["v"].cast(kind)), path)
        findings = Findings()
        run = replace(first, size=Path(path).stat().st_size)
        check_run(table.filestore.table_files(table.filestore.state()), run, findings)
        (finding,) = findings
        assert finding.code is Invariant.PENDING_RUN
        assert "or types, that" in finding.message


def test_sequences_and_deletes_from_before_they_were_wider(store: Store) -> None:
    sequenced = {"sequence.field": "v", "sequence.tombstone-retention": "1 d", "log.system": "none"}
    table = narrow(store, **sequenced)
    put(table, (1, 100), (2, 50), (3, 5))
    table.compact(full=True)
    put(table, (1, 120, "-D"), (2, 40, "+U"))
    table.compact(full=True)
    put(table, (3, 100, "+U"), (4, 1, "+U"))
    table.alter("ALTER COLUMN v TYPE BIGINT")
    put(table, (1, 110, "+U"), (3, 90, "+U"), (4, 1000, "-D"), (2, 51, "+U"))
    expected = [{"id": 2, "v": 51}, {"id": 3, "v": 100}]
    assert rows(table) == table.get([1, 2, 3, 4]).to_pylist() == expected
    assert in_order(read_deltalake(overlay_of(table))) == expected
    table.compact(full=True)
    put(table, (4, 999), (1, 119))
    assert assert_whole(table) == expected


def test_sequence_groups_from_before_they_were_wider(store: Store) -> None:
    options = {"merge-engine": "partial-update", "fields.g.sequence-group": "a", "log.system": "none"}
    table = make(store, "id INT, g TINYINT, a STRING", **LATER, **options)
    put(table, (1, 100, "x"), (2, 5, "y"))
    table.alter("ALTER COLUMN g TYPE BIGINT")
    put(table, (1, 99, "late"), (2, 2**40, "z"))
    expected = [{"id": 1, "g": 100, "a": "x"}, {"id": 2, "g": 2**40, "a": "z"}]
    assert rows(table) == expected
    table.compact(full=True)
    assert assert_whole(table) == expected


def test_change_data_of_runs_from_before_they_were_wider(store: Store) -> None:
    table = narrow(store, **{"changelog-producer": "full-compaction"})
    put(table, (1, 1), (2, 2))
    table.compact(full=True)
    put(table, (1, 3), (3, 3))
    table.alter("ALTER COLUMN v TYPE BIGINT")
    put(table, (2, 2**40))
    table.compact(full=True)
    assert assert_whole(table) == [{"id": 1, "v": 3}, {"id": 2, "v": 2**40}, {"id": 3, "v": 3}]
    assert replay(changes(table, version=0), ["id"]) == rows(table)


def test_an_overlay_has_no_narrower_file(store: Store) -> None:
    """Delta has no feature by which readers recognise a file with a narrower type."""
    table = narrow(store)
    put(table, *((n, n) for n in range(5)))
    table.compact(full=True)
    put(table, (0, 10, "+U"), (1, None, "-D"), (7, 7, "+U"))
    put(table, (0, 11), (2, 12))
    table.alter("ALTER COLUMN v TYPE BIGINT")
    put(table, (0, 2**40), (8, 8))
    location = overlay_of(table)
    expected = {0: 2**40, 2: 12, 3: 3, 4: 4, 7: 7, 8: 8}
    assert {row["id"]: row["v"] for row in read_deltalake(location)} == expected
    assert {row["id"]: row["v"] for row in rows(table)} == expected

"""Deletes that a table ignores.

With first-row they stood among the keys to look up again, as nulls: a race with a compaction failed. With deduplicate
they deleted.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from compaction.compact import compact_table
from filestore.errors import InvalidRequest
from tablestore import Store
from tests.tables import assert_healthy, create, define, prepare, read, reopen, write


def test_an_ignored_delete_of_a_stored_key_survives_a_compaction(folder: Path) -> None:
    definition = define("id BIGINT, v STRING", ["id"], merge__engine="first-row", ignore__delete="true")
    store = create(folder / "t", definition)
    write(store, [{"id": 1, "v": "a"}])
    write(store, [{"id": 2, "v": "a"}])
    mine = prepare(reopen(store), [{"id": 1, "_kind": "-D"}, {"id": 3, "v": "a"}])
    assert compact_table(store, full=True) is not None
    assert mine.result.metrics["rows_deleted"] == 0
    mine.commit()
    assert [row["id"] for row in read(reopen(store))] == [1, 2, 3]
    assert_healthy(reopen(store))


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
@pytest.mark.parametrize("producer", ["none", "lookup", "input"])
def test_deduplicate_ignores_them_in_rows_changes_and_log(store: Store, mode: str, producer: str) -> None:
    if (mode, producer) == ("merge-on-read", "lookup"):
        producer = "full-compaction"
    options = {"ignore-delete": "true", "write-mode": mode, "changelog-producer": producer}
    table = store.create_table("shop.kept", "id BIGINT, v STRING", primary_key=["id"], options=options)
    table.write(pa.table({"id": [1, 2], "v": ["a", "a"]}))
    table.write(pa.table({"id": [1, 2, 2], "v": ["a", "a", "b"], "_kind": ["-D", "-U", "+U"]}))
    table.write(pa.table({"id": [1, 3], "v": pa.nulls(2, pa.string()), "_kind": ["-D", "-D"]}))
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]
    reported = [
        kind for batch in table.follow(stop=table.snapshots()[-1].version) for kind in batch["_kind"].to_pylist()
    ]
    assert "-D" not in reported
    table.compact(full=True)
    assert len(table.scan().to_arrow()) == 2
    assert not table.examine().problems


def test_an_ignored_delete_must_still_be_a_row(store: Store) -> None:
    options = {"ignore-delete": "true"}
    table = store.create_table("shop.kept", "id BIGINT, v STRING", primary_key=["id"], options=options)
    with pytest.raises(InvalidRequest, match="null"):
        table.write(pa.table({"id": pa.nulls(1, pa.int64()), "_kind": ["-D"]}))


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
@pytest.mark.parametrize("sequence", [True, False])
def test_regression_an_ignored_delete_took_the_rows_of_a_key_that_has_many(
    store: Store, mode: str, sequence: bool
) -> None:
    """Of a key with most rows of a row group only the last row was kept, and it was ignored then."""
    options = {"ignore-delete": "true", "row-group.rows": "1024", "write-mode": mode, "log.system": "none"}
    options |= {"sequence.field": "v"} if sequence else {}
    table = store.create_table("shop.kept", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
    kinds = ["+I"] * 1023 + ["-D", "+I"]
    table.write(pa.table({"id": [1] * 1024 + [2], "v": range(1025), "_kind": kinds}))
    rows = [{"id": 1, "v": 1022}, {"id": 2, "v": 1024}]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == rows

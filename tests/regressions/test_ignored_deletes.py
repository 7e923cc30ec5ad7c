"""A delete that first-row ignores stood among the keys to look up again, as a null: a race with a compaction failed."""

from __future__ import annotations

from pathlib import Path

from compaction.local import compact_table
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

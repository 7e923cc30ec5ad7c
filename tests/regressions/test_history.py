"""Found while reviewing the commit loop: unusual histories."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from filestore import layout
from filestore.commit.proposal import AppVersion
from filestore.errors import Corrupt, NotFound, Unsupported
from filestore.parquet.whole import parquet_bytes, parquet_rows
from tests.filestore.surgery import edit_entry
from tests.tables import assert_healthy, create, define, prepare, reopen, write


def test_a_batch_older_than_all_that_are_known_is_a_no_op(folder: Path) -> None:
    """The number was known to be committed, but its commit was not found: the write failed with NotFound."""
    store = create(folder / "t", define("id BIGINT", ["id"]))
    write(store, [{"id": 3}], app=AppVersion("query", 3))
    again = write(reopen(store), [{"id": 1}], app=AppVersion("query", 1))
    assert (again.fresh, again.snapshot.version) == (False, 1)


def test_a_writer_that_slept_through_a_drop_does_not_write_into_the_new_table(folder: Path) -> None:
    """It wrote version 2 into a log that had version 0 only, which left a gap, and added rows of the old table."""
    store = create(folder / "t", define("id BIGINT", ["id"]))
    write(store, [{"id": 1}])
    prepared = prepare(store, [{"id": 2}])
    store.storage.delete_tree(store.location)
    fresh = create(folder / "t", define("id BIGINT", ["id"]))
    with pytest.raises(NotFound, match="dropped or made again"):
        prepared.commit()
    assert fresh.delta_log.versions() == [0]


@pytest.mark.parametrize("kind", ["readerFeatures", "writerFeatures"])
def test_a_table_with_a_feature_of_the_future_is_not_opened(folder: Path, kind: str) -> None:
    """Features were not checked: a table with column mapping would have been read with wrong names."""
    store = create(folder / "t", define("id BIGINT", ["id"], checkpoint_interval=1))
    edit_entry(store, 0, lambda actions: actions[1]["protocol"][kind].append("variantType"))
    with pytest.raises(Unsupported, match="variantType"):
        reopen(store)
    write(store, [{"id": 1}])
    path = Path(store.location, layout.checkpoint_path(1))
    rows = parquet_rows(path.read_bytes(), "f")
    found = [p and p | {kind: [*p[kind], "variantType"]} for p in rows.column("protocol").to_pylist()]
    at = rows.column_names.index("protocol")
    path.write_bytes(parquet_bytes(rows.set_column(at, "protocol", pa.array(found, rows.schema.field(at).type))))
    with pytest.raises(Unsupported, match="variantType"):
        reopen(store)  # the checkpoint is read now


def test_a_time_of_creation_that_is_none_is_damage_when_the_table_is_opened(folder: Path) -> None:
    """It became an error of Python's, at its first use, as `metaData` was kept as it was written."""
    store = create(folder / "t", define("id BIGINT", ["id"]))
    edit_entry(store, 0, lambda actions: actions[2]["metaData"].update(createdTime="x"))
    with pytest.raises(Corrupt) as refused:
        reopen(store)
    assert refused.value.code == "bad-log-entry"


@pytest.mark.parametrize("content", ['{"add"', "[1]", '{"a": 1}\nnull'])
def test_a_broken_entry_is_called_corrupt(folder: Path, content: str) -> None:
    """It raised JSONDecodeError, which no handler of ours catches."""
    store = create(folder / "t", define("id BIGINT", ["id"]))
    (Path(store.location) / layout.log_entry_path(1)).write_text(content)
    with pytest.raises(Corrupt):
        reopen(store)


def test_a_line_separator_in_a_text_does_not_cut_an_entry(folder: Path) -> None:
    """This was no bug, but may become one: some splitters end a line at U+2028, and statistics contain it unescaped."""
    store = create(folder / "t", define("id BIGINT, s STRING", ["id"], checkpoint_interval=1))
    write(store, [{"id": 1, "s": "a\u2028b\u0085c\x1ed"}])
    assert len((Path(store.location) / layout.log_entry_path(1)).read_bytes().split(b"\n")) == 3
    assert reopen(store).state() == store.state()
    assert json.loads(next(iter(store.state().files)).stats)["minValues"]["s"] == "a\u2028b\u0085c\x1ed"
    assert_healthy(store)

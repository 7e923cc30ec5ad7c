"""Found while reviewing the look-up: column names that collided with internal names or with other columns' fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from filestore.errors import InvalidRequest
from filestore.model.changes import AddColumn, RenameColumn
from filestore.model.own_columns import is_own
from filestore.model.schema import Schema
from filestore.model.sql import parse_columns, parse_table_columns
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from log.connector.declaration import KafkaDeclaration
from tests.tables import assert_healthy, create, define, read, write

MONGO = "_id STRING, `_class` STRING, _s STRUCT<_id: INT, _row: INT>, __v INT"


@pytest.mark.parametrize("engine", ["deduplicate", "first-row", "partial-update"])
@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_names_with_an_underscore_are_the_users(folder: Path, engine: str, mode: str) -> None:
    """``_id``, which each collection of MongoDB has, was refused; its columns were taken for the kernel's own."""
    store = create(folder / "t", define(MONGO, ["_id"], merge__engine=engine, write__mode=mode))
    first = {"_id": "a", "_class": "c", "_s": {"_id": 1, "_row": 2}, "__v": 3}
    write(store, [first, {**first, "_id": "b"}])
    write(store, [{**first, "__v": 4}])
    fold_table(store, full=True)
    expected = 3 if engine == "first-row" else 4
    assert sorted(read(store), key=lambda row: row["_id"]) == [{**first, "__v": expected}, {**first, "_id": "b"}]
    alter(store, (AddColumn("_rev", "INT"),))
    assert set(read(store)[0]) == {"_id", "_class", "_s", "__v", "_rev"}
    assert_healthy(store)


@pytest.mark.parametrize("name", ["group", "row"])
def test_a_sequence_field_may_have_any_name(folder: Path, name: str) -> None:
    """One that was called ``group`` took the place of the keys' numbers: rows of other keys were lost."""
    store = create(folder / "t", define(f"id BIGINT, `{name}` INT", ["id"], sequence_field=name))
    write(store, [{"id": n % 4, name: (n * 7) % 11} for n in range(20)])
    best = {key: max((n * 7) % 11 for n in range(20) if n % 4 == key) for key in range(4)}
    assert {row["id"]: row[name] for row in read(store)} == best
    assert_healthy(store)


def test_a_topic_may_have_them_and_a_partition_may_not() -> None:
    columns = parse_table_columns(MONGO, ["_id"])
    broker = {"topic": "t", "properties.bootstrap.servers": "h:1", "key.format": "json", "value.format": "json"}
    made = KafkaDeclaration.of(columns, ["_id"], {"connector": "upsert-kafka", **broker})
    assert made.key_fields == ("_id",)
    with pytest.raises(InvalidRequest, match="partition column '_day' begins with '_'") as caught:
        define("id INT, _day DATE", ["id", "_day"], partition_by=["_day"])
    assert caught.value.code == "bad-column-name"


OWN = re.compile(r"""["'](_[a-z]+(?:_[a-z]+)*_?)["']|with_columns\((_[a-z]+)=""")
NO_COLUMNS = {
    "_delta_log",
    "_staged_commits",
    "_runs",
    "_change_data",
    "_overlays",
    "_consumers",
    "_log",
    "_error",
    "_before",
    "_columns",
    "_by_name",
    "_opened",
    "_origin",
    "_parsed",
    "_texts",
}


@pytest.mark.parametrize("package", ["filestore", "compaction", "log", "tablestore"])
def test_every_name_of_the_stores_own_columns_is_reserved(package: str) -> None:
    root = Path(__file__).parents[2] / package
    found = {name for file in root.rglob("*.py") for pair in OWN.findall(file.read_text()) for name in pair if name}
    assert {name for name in found - NO_COLUMNS if not is_own(name)} == set()


def test_a_struct_has_a_field_named_like_the_key(folder: Path) -> None:
    """The look-up took the statistics of ``s.id`` for those of ``id``: TypeError, or row groups wrongly skipped."""
    store = create(folder / "t", define("s STRUCT<id: STRING>, id BIGINT", ["id"]))
    write(store, [{"s": {"id": "zz"}, "id": 1}])
    write(store, [{"s": {"id": "b"}, "id": 1}])
    assert read(store) == [{"s": {"id": "b"}, "id": 1}]


def test_a_struct_of_the_keys_own_type_must_not_hide_row_groups(folder: Path) -> None:
    store = create(folder / "t", define("s STRUCT<id: BIGINT>, id BIGINT", ["id"]))
    write(store, [{"s": {"id": 1000}, "id": 1}])
    write(store, [{"s": {"id": 2000}, "id": 1}])
    assert len(read(store)) == 1
    assert_healthy(store)


@pytest.mark.parametrize("names", [("row", "probe"), ("group", "new"), ("0", "1"), ("a", "a.b")])
def test_key_columns_are_called_as_the_kernel_calls_its_own(folder: Path, names: tuple[str, str]) -> None:
    """A composite key with a column ``row`` or ``probe`` could not be looked up: DuplicateError."""
    one, two = names
    columns = f"`{one}` BIGINT, `{two}` STRING, v INT"
    store = create(folder / "t", define(columns, names))
    for value in (1, 2):
        write(store, [{one: 1, two: "a", "v": value}])
    assert [row["v"] for row in read(store)] == [2]
    assert_healthy(store)


def test_a_column_is_called_as_parquet_calls_a_structs_field(folder: Path) -> None:
    """The number's encoding was taken for the text's, too, and the disk was blamed for it."""
    store = create(folder / "t", define("`a.b` BIGINT, a STRUCT<b: STRING>, n INT", ["a.b"]))
    rows = [{"a.b": 1, "a": {"b": "x"}, "n": 1}, {"a.b": 2, "a": {"b": "y"}, "n": 2}]
    write(store, rows)
    assert read(store) == rows
    assert_healthy(store)


def test_a_backtick_in_a_name_survives_sql() -> None:
    schema = parse_columns("`a``b` INT, s STRUCT<`c``d`: INT>")
    assert parse_columns(schema.to_sql()) == schema == Schema(schema.columns)


@pytest.mark.parametrize("name", ["日", "日本", ".net", "."])
def test_no_partition_is_in_a_folder_that_readers_skip(folder: Path, name: str) -> None:
    """What a folder's name cannot have became ``_``, with which no partition column may begin; so did a letter."""
    store = create(folder / "t", define(f"id BIGINT, `{name}` STRING", ["id", name], partition_by=[name]))
    write(store, [{"id": 1, name: "x"}])
    (file,) = store.state().files
    assert not file.path.startswith(("_", "."))
    assert read(store) == [{"id": 1, name: "x"}]
    assert_healthy(store)


PATTERNS = ["*", "^$", "^a$", "^.*$"]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("id BIGINT, {} STRING", ["id"]),
        ("id BIGINT, {} STRING", ["id", "{}"]),
        ("id BIGINT, s STRUCT<{}: STRING>", ["id"]),
        ("id BIGINT, s ARRAY<MAP<INT, STRUCT<x: STRUCT<{}: INT>>>>", ["id"]),
    ],
)
def test_a_name_that_polars_takes_for_a_pattern_is_refused(name: str, columns: str, key: list[str]) -> None:
    """Such a table was made; then scan, get and compact failed, with a PanicException if it was a partition column."""
    with pytest.raises(InvalidRequest) as refused:
        define(columns.format(f"`{name}`"), tuple(column.format(name) for column in key))
    assert refused.value.code == "bad-column-name"
    assert repr(name) in refused.value.message


@pytest.mark.parametrize("name", PATTERNS)
def test_no_change_gives_a_column_such_a_name(folder: Path, name: str) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]))
    for change in (AddColumn(name, "INT"), RenameColumn("v", name), AddColumn("s", f"STRUCT<`{name}`: INT>")):
        with pytest.raises(InvalidRequest) as refused:
            alter(store, [change])
        assert refused.value.code == "bad-column-name"
    assert store.state().version == 0


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        ("id BIGINT, `*` STRING", {}),
        ("id BIGINT, `^a$` TIMESTAMP METADATA FROM 'timestamp'", {}),
        ("id BIGINT, `k*` INT", {"key.fields": "k*", "key.fields-prefix": "k", "value.fields-include": "EXCEPT_KEY"}),
    ],
)
def test_nor_has_a_topic_such_a_column(columns: str, more: dict[str, str]) -> None:
    options = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:1", "key.format": "json"}
    options |= {"value.format": "json", "key.fields": "id"} | more
    with pytest.raises(InvalidRequest) as refused:
        KafkaDeclaration.of(parse_table_columns(columns), options=options)
    assert refused.value.code == "bad-column-name"


@pytest.mark.parametrize("name", ["^a", "a$", "**", "*a", "$", "^", ".*", "[a]", "a|b"])
def test_a_name_that_only_resembles_a_pattern_is_a_name(folder: Path, name: str) -> None:
    store = create(folder / "t", define(f"id BIGINT, `{name}` STRING, a STRING", ["id", name], partition_by=[name]))
    rows = [{"id": 1, name: "x", "a": "1"}, {"id": 2, name: "y", "a": "2"}]
    write(store, rows)
    assert read(store) == rows
    assert_healthy(store)

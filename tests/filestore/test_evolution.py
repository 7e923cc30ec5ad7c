"""Changes of a definition: their results, and those that are refused (FORMAT.md section 3.1)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.delta.actions import metadata_action
from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.model.changes import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetNullable,
    SetOption,
    UnsetOption,
    WidenColumn,
)
from filestore.model.definition import COLUMN_MAPPING, TYPE_WIDENING, TableDefinition
from filestore.model.evolution import Evolution, evolve
from filestore.model.schema import Schema
from filestore.model.types import from_delta, is_wider
from filestore.rows.reshape import reshaped
from tests.tables import define

COLUMNS = "id BIGINT, a INT, b STRING NOT NULL COMMENT 'b', s STRUCT<x: INT, y: ARRAY<STRUCT<z: INT>>>, f FLOAT"
TABLE = define(COLUMNS, ["id"])
METADATA = define(COLUMNS, ["id"], schema_evolution__mode="metadata")


def changed(definition: TableDefinition, *changes: Change) -> Evolution:
    numbers = itertools.count()
    result = evolve(definition, changes, lambda: f"new{next(numbers)}")
    stored = metadata_action(result.definition, "t", 1)["metaData"]
    assert TableDefinition.from_delta(stored) == result.definition, "what is stored says all of it"
    return result


def names(evolution: Evolution) -> list[str]:
    return list(evolution.definition.schema.names)


@pytest.mark.parametrize("table", [TABLE, METADATA])
def test_what_is_metadata_only(table: TableDefinition) -> None:
    found = changed(
        table,
        AddColumn("n", "DECIMAL(10,2)", comment="new", after="id"),
        AddColumn("first", pa.large_string(), first=True),
        AddColumn("last", "MAP<STRING, INT>"),
        MoveColumn("f"),
        MoveColumn("id", "last"),
        SetNullable("b"),
        SetComment(None, "b"),
        SetComment("the table"),
        SetOption("target-file-size", "1 mb"),
        UnsetOption("target-file-size"),
    )
    assert names(found) == ["f", "first", "n", "a", "b", "s", "last", "id"]
    assert not found.rewrites
    assert not found.readers
    assert not found.definition.features
    schema = found.definition.schema
    assert schema.column("n").comment == "new"
    assert schema.column("b").nullable
    assert schema.column("b").comment is None
    assert schema.column("first").type == pa.string()
    assert found.definition.comment == "the table"
    assert found.definition.options == table.options


def test_ids_stay_and_are_never_given_again() -> None:
    first = changed(TABLE, DropColumn("f"), AddColumn("f", "FLOAT"), RenameColumn("a", "aa")).definition
    ids = {column.name: column.id for column in first.schema}
    assert ids == {"id": 1, "aa": 2, "b": 3, "s": 4, "f": 9}, "the three fields of s have 5, 6 and 7"
    assert first.last_id == 9
    second = changed(first, DropColumn("f"), AddColumn("f", "STRUCT<q: INT>")).definition
    assert second.schema.column("f").id == 10
    assert second.last_id == 11
    assert changed(second, DropColumn("f"), AddColumn("g", "INT")).definition.schema.column("g").id == 12


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        (DropColumn("a"), COLUMN_MAPPING),
        (RenameColumn("a", "c"), COLUMN_MAPPING),
        (WidenColumn("a", "BIGINT"), TYPE_WIDENING),
        (WidenColumn("f", "DOUBLE"), TYPE_WIDENING),
    ],
)
def test_two_ways_to_drop_rename_and_widen(change: Change, feature: str) -> None:
    rewritten = changed(TABLE, change)
    assert rewritten.rewrites
    assert not rewritten.readers
    assert not rewritten.definition.features
    assert all(c.stored_name is None and not c.former_types for c in rewritten.definition.schema)
    mapped = changed(METADATA, change)
    assert not mapped.rewrites
    assert mapped.definition.features == {feature}
    (reader,) = mapped.readers
    assert "polars" in reader
    later = WidenColumn("a", "BIGINT") if feature == TYPE_WIDENING else DropColumn("f")
    again = changed(mapped.definition, SetOption("schema.evolution-mode", "rewrite"), later)
    assert not again.rewrites, "what is on is used"
    assert not again.readers, "and shuts nobody out again"


def test_the_mode_may_come_with_the_change() -> None:
    found = changed(TABLE, RenameColumn("a", "c"), SetOption("schema.evolution-mode", "metadata"))
    assert not found.rewrites
    assert found.definition.features == {COLUMN_MAPPING}


def test_names_in_files_and_former_types() -> None:
    first = changed(METADATA, RenameColumn("a", "c"), AddColumn("a", "INT"), WidenColumn("c", "BIGINT")).definition
    stored = {c.name: c.in_files for c in first.schema}
    assert stored == {"id": "id", "c": "a", "b": "b", "s": "s", "f": "f", "a": "col-new0"}
    assert first.schema.column("c").former_types == (pa.int32(),)
    fields = {f["name"]: f for f in json.loads(metadata_action(first, "t", 1)["metaData"]["schemaString"])["fields"]}
    assert fields["c"]["metadata"] == {
        "tablestore.id": 2,
        "delta.columnMapping.id": 2,
        "delta.columnMapping.physicalName": "a",
        "delta.typeChanges": [{"fromType": "integer", "toType": "long"}],
    }
    x, y = fields["s"]["type"]["fields"]
    assert x["metadata"] == {"delta.columnMapping.id": 5, "delta.columnMapping.physicalName": "x"}
    assert y["metadata"] == {"delta.columnMapping.id": 6, "delta.columnMapping.physicalName": "y"}
    assert y["type"]["elementType"]["fields"][0]["metadata"]["delta.columnMapping.id"] == 7
    properties = first.to_properties()
    assert properties["delta.columnMapping.mode"] == "name"
    assert properties["delta.columnMapping.maxColumnId"] == "9"
    assert properties["delta.enableTypeWidening"] == "true"


def test_names_in_files_and_former_types_of_two_changes() -> None:
    first = changed(METADATA, RenameColumn("a", "c"), WidenColumn("c", "BIGINT"))
    assert first.definition.schema.column("c").former_types == (pa.int32(),)
    small = changed(METADATA, AddColumn("n", "SMALLINT")).definition
    once = changed(small, WidenColumn("n", "INT"), RenameColumn("n", "m")).definition
    twice = changed(once, WidenColumn("m", "BIGINT"), RenameColumn("m", "l")).definition
    assert twice.schema.column("l").in_files == once.schema.column("m").in_files == "n"
    assert twice.schema.column("l").former_types == (pa.int16(), pa.int32())


def test_swapped_names_are_two_renamed_columns() -> None:
    found = changed(TABLE, RenameColumn("a", "t"), RenameColumn("f", "a"), RenameColumn("t", "f"))
    assert {c.name: c.id for c in found.definition.schema if c.name in "af"} == {"a": 8, "f": 2}
    assert found.rewrites


def test_rows_of_before_keep_their_columns_though_names_were_swapped() -> None:
    found = changed(TABLE, RenameColumn("a", "t"), RenameColumn("f", "a"), RenameColumn("t", "f")).definition.schema
    written = TABLE.schema
    rows = pa.table({c.name: pa.array([7 if c.name == "a" else None], c.type) for c in written})
    read = reshaped(rows, written, found).to_pylist()[0]
    assert (read["f"], read["a"]) == (7, None)


@pytest.mark.parametrize(
    "changes",
    [
        [RenameColumn("a", "c"), RenameColumn("c", "a")],
        [MoveColumn("a"), MoveColumn("a", "id")],
        [SetOption("target-file-size", "1 mb"), UnsetOption("target-file-size")],
        [WidenColumn("a", "INT")],
        [SetNullable("a")],
        [SetComment("b", "b")],
    ],
)
def test_what_comes_back_to_the_same_is_no_change(changes: Sequence[Change]) -> None:
    assert changed(TABLE, *changes).definition is TABLE


def test_a_not_null_column_needs_a_table_without_rows() -> None:
    assert changed(TABLE, AddColumn("n", "INT", nullable=False)).needs_no_rows
    assert not changed(TABLE, AddColumn("n", "INT", nullable=False), SetNullable("n")).needs_no_rows


def test_a_table_without_a_key_keeps_its_buckets() -> None:
    table = define("a INT, b STRING, f FLOAT", bucket=4)
    found = changed(table, AddColumn("first", "INT", first=True), MoveColumn("b")).definition
    assert found.bucket_key == table.bucket_key == ("a", "b")
    with pytest.raises(InvalidRequest, match="bucket key"):
        changed(table, DropColumn("b"))
    assert changed(define("a INT, b STRING"), DropColumn("b")).definition.bucket_key == ("a",)


PLACED = define(
    "id INT, k INT, d DATE, s INT, v INT, w INT, g INT, x INT",
    ["id", "k", "d"],
    ["d"],
    bucket__key="id",
    sequence_field="s",
    merge__engine="partial-update",
    **{"fields_g_sequence__group": "w", "fields_v_aggregate__function": "sum"},
)


@pytest.mark.parametrize("name", ["id", "k", "d", "s", "v", "w", "g"])
def test_columns_that_the_table_rests_on_stay(name: str) -> None:
    for change in (DropColumn(name), RenameColumn(name, "new")):
        with pytest.raises(InvalidRequest) as caught:
            changed(PLACED, change)
        assert caught.value.code == "column-in-use"
        assert repr(name) in caught.value.message


def test_what_may_be_widened() -> None:
    for name in ("id", "k"):
        with pytest.raises(InvalidRequest) as caught:
            changed(PLACED, WidenColumn(name, "BIGINT"))
        assert caught.value.code == "column-in-use"
    assert changed(PLACED, *(WidenColumn(name, "BIGINT") for name in "svwgx")).rewrites
    appended = define("k INT, v INT", bucket="4", bucket__key="k")
    with pytest.raises(InvalidRequest, match="bucket key"):
        changed(appended, WidenColumn("k", "BIGINT"))
    assert changed(appended, WidenColumn("v", "BIGINT")).rewrites


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([], "no-changes"),
        ([AddColumn("a", "INT")], "duplicate-column"),
        ([AddColumn("A", "INT")], "duplicate-column"),
        ([AddColumn("_Kind", "INT")], "bad-column-name"),
        ([AddColumn("n", "STRUCT<q: INT, Q: INT>")], "duplicate-column"),
        ([AddColumn("n", "INT", first=True, after="a")], "bad-position"),
        ([AddColumn("n", "INTEGERS")], "unsupported-type"),
        ([AddColumn("n", "INT NOT NULL")], "unsupported-type"),
        ([AddColumn("n", "INT, m INT")], "unsupported-type"),
        ([AddColumn("n", pa.uint8())], "unsupported-type"),
        ([AddColumn("n", "INT", comment="\0")], "bad-text"),
        ([RenameColumn("a", "B")], "duplicate-column"),
        ([RenameColumn("a", " ")], "bad-column-name"),
        ([MoveColumn("a", "a")], "bad-position"),
        ([WidenColumn("a", "SMALLINT")], "not-wider"),
        ([WidenColumn("a", "STRING")], "not-wider"),
        ([WidenColumn("s", "STRUCT<x: BIGINT>")], "nested-change"),
        ([SetNullable("id")], "nullable-key"),
        ([SetComment("\ud800", "a")], "bad-text"),
        ([SetOption("bucket", "4")], "fixed-option"),
        ([UnsetOption("log.system")], "fixed-option"),
        ([SetOption("target-file-size", "many")], "bad-option-value"),
        ([SetOption("target-file", "1 mb")], "unknown-option"),
        ([UnsetOption("target-file-size")], "option-not-set"),
        ([SetOption("fields.a.aggregate-function", "sum")], "fixed-option"),
        ([SetOption("fields.a.sequence-group", "f")], "fixed-option"),
        ([AddColumn("n", "INT"), SetOption("fields.n.aggregate-function", "sum")], "merge-engine"),
    ],
)
def test_what_is_refused(changes: Sequence[Change], code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        changed(TABLE, *changes)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "change",
    [
        DropColumn("zz"),
        RenameColumn("zz", "z"),
        MoveColumn("zz"),
        MoveColumn("a", "zz"),
        WidenColumn("zz", "INT"),
        SetNullable("zz"),
        SetComment("", "zz"),
        AddColumn("n", "INT", after="zz"),
    ],
)
def test_a_column_that_is_not_there(change: Change) -> None:
    with pytest.raises(NotFound, match="there is no column 'zz'"):
        changed(TABLE, change)


def test_a_column_may_be_added_with_its_function() -> None:
    table = define("id INT, v INT", ["id"], merge__engine="aggregation")
    found = changed(table, SetOption("fields.n.aggregate-function", "sum"), AddColumn("n", "INT")).definition
    assert found.merging.fields["n"].function == "sum"
    with pytest.raises(InvalidRequest, match="takes"):
        changed(table, SetOption("fields.n.aggregate-function", "sum"), AddColumn("n", "STRING"))
    with pytest.raises(InvalidRequest, match="is for aggregate-function collect"):
        changed(table, SetOption("fields.n.distinct", "true"), AddColumn("n", "ARRAY<INT>"))


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        (DropColumn("b"), True),
        (RenameColumn("b", "z"), True),
        (WidenColumn("a", "BIGINT"), False),
        (SetOption("ignore-delete", "true"), True),
        (SetOption("ignore-delete", "false"), False),
        (RenameColumn("b", "z"), True),
        (WidenColumn("a", "BIGINT"), False),
        (SetOption("target-file-size", "1 mb"), False),
        (AddColumn("n", "INT"), False),
        (MoveColumn("b"), False),
    ],
)
def test_what_pending_runs_were_written_for_needs_them_folded(change: Change, needed: bool) -> None:
    assert changed(TABLE, change).needs_folds is needed
    by_metadata = changed(TABLE, SetOption("schema.evolution-mode", "metadata"), change)
    assert by_metadata.needs_folds is (needed and isinstance(change, SetOption))


TYPES = [from_delta(name) for name in ("byte", "short", "integer", "long", "float", "double", "string", "date")]
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))


@given(st.sampled_from(TYPES) | DECIMALS, st.sampled_from(TYPES) | DECIMALS)
@example(pa.decimal128(9, 2), pa.decimal128(10, 4))
@example(pa.decimal128(9, 2), pa.decimal128(11, 4))
@example(pa.decimal128(9, 2), pa.decimal128(11, 1))
def test_a_wider_type_is_one_to_which_arrow_casts_all_values(narrow: pa.DataType, wide: pa.DataType) -> None:
    extremes = _extremes(narrow)
    if is_wider(wide, narrow):
        assert pa.array(extremes, narrow).cast(wide).cast(narrow).to_pylist() == pa.array(extremes, narrow).to_pylist()
        assert not is_wider(narrow, wide)
    elif pa.types.is_decimal(narrow) and pa.types.is_decimal(wide) and wide != narrow:
        lossless = wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
        assert not lossless


def _extremes(kind: pa.DataType) -> list[object]:
    if pa.types.is_integer(kind):
        return [-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1]
    if pa.types.is_decimal(kind):
        digits = pa.scalar(
            "9" * (kind.precision - kind.scale) + "." + "9" * kind.scale if kind.scale else "9" * kind.precision
        )
        return [digits.cast(kind).as_py()]
    return [0.1, -3.4e38] if pa.types.is_floating(kind) else []


CHANGES = st.one_of(
    st.builds(AddColumn, st.sampled_from("uvwxyz"), st.sampled_from(["INT", "STRUCT<p: INT, q: STRUCT<r: INT>>"])),
    st.builds(DropColumn, st.sampled_from("abfsuvwxyz")),
    st.builds(RenameColumn, st.sampled_from("abfsuvwxyz"), st.sampled_from("abfsuvwxyz")),
    st.builds(MoveColumn, st.sampled_from("abfsuvwxyz"), st.sampled_from("abfsuvwxyz") | st.none()),
    st.builds(WidenColumn, st.sampled_from("abf"), st.sampled_from(["BIGINT", "DOUBLE"])),
    st.builds(SetOption, st.just("schema.evolution-mode"), st.sampled_from(["rewrite", "metadata"])),
)


@given(st.lists(CHANGES, max_size=30))
def test_any_history_keeps_ids_and_names_in_files_apart(changes: list[Change]) -> None:
    definition, ever = TABLE, dict[int, str]()
    numbers = itertools.count()
    for change in changes:
        try:
            step = evolve(definition, [change], lambda: str(next(numbers)))
        except TableStoreError:
            continue
        schema, before = step.definition.schema.numbered(), definition.schema.numbered()
        assert len({c.id for c in schema}) == len(schema.columns)
        assert len({c.in_files for c in schema}) == len(schema.columns)
        assert schema.mapped == (COLUMN_MAPPING in step.definition.features)
        assert step.definition.features >= definition.features
        for column in schema:
            former = next((c for c in before if c.id == column.id), None)
            if former is None:
                assert column.id not in ever
                assert not schema.mapped or column.in_files not in {c.in_files for c in before}
            elif not step.rewrites:
                assert column.in_files == former.in_files, "files stay, so their names do"
        ever |= {c.id or 0: c.name for c in schema}
        assert Schema.from_delta(json.loads(json.dumps(step.definition.schema.to_delta()))) == step.definition.schema
        definition = step.definition

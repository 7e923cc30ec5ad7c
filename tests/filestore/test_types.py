"""Types and schemas in all their notations (FORMAT.md section 3)."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model import types
from filestore.model.schema import Column, Schema
from filestore.model.sql import parse_columns, parse_type
from tests.filestore.arrays import data_types

NAMES = st.text("abcXYZ.é-'\"`/%0_", min_size=1, max_size=6).filter(lambda name: not name.startswith("_"))
COMMENTS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)


def columns() -> st.SearchStrategy[Column]:
    return st.builds(Column, NAMES, data_types(), st.booleans(), COMMENTS)


def schemas() -> st.SearchStrategy[Schema]:
    several = st.lists(columns(), min_size=1, max_size=5, unique_by=lambda column: column.name.lower())
    return several.map(lambda chosen: Schema(tuple(chosen)))


@given(data_types())
def test_canonical_types_are_their_own_canonical_form(kind: pa.DataType) -> None:
    assert types.canonical(kind) == kind


@given(data_types())
def test_types_survive_delta(kind: pa.DataType) -> None:
    back = types.from_delta(json.loads(json.dumps(types.to_delta(kind))))
    assert back.equals(kind)
    assert str(back) == str(kind), "nullability of what is inside too"


def _without_constraints(kind: pa.DataType) -> pa.DataType:
    """SQL cannot declare elements and values as not null."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _without_constraints(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_constraints(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _without_constraints(f.type), f.nullable) for f in kind])
    return kind


@given(data_types())
def test_types_survive_sql(kind: pa.DataType) -> None:
    assert parse_type(types.to_sql(kind)) == _without_constraints(kind)


@given(schemas())
def test_schemas_survive_delta(schema: Schema) -> None:
    assert Schema.from_delta(json.loads(json.dumps(schema.to_delta()))) == schema


@given(schemas())
def test_schemas_survive_arrow(schema: Schema) -> None:
    again = Schema.from_arrow(schema.to_arrow())
    assert [(c.name, c.type, c.nullable) for c in again] == [(c.name, c.type, c.nullable) for c in schema]


@settings(max_examples=15)
@given(schemas())
def test_schemas_survive_sql(schema: Schema) -> None:
    again = parse_columns(schema.to_sql())
    simple = [(c.name, _without_constraints(c.type), c.nullable, c.comment) for c in schema]
    assert [(c.name, c.type, c.nullable, c.comment) for c in again] == simple


@pytest.mark.parametrize("text", ["", "a", "a INT) (b INT", "a INT; DROP TABLE t", "PRIMARY KEY (a)", "SELECT 1"])
def test_what_is_no_column_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_columns(text)
    assert caught.value.code in {"bad-column-list", "unsupported-type"}


@pytest.mark.parametrize(
    ("arrow", "canonical"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.decimal256(38, 4), pa.decimal128(38, 4)),
        (pa.large_list(pa.large_string()), pa.list_(pa.field("element", pa.string()))),
        (pa.list_(pa.int8(), 3), pa.list_(pa.field("element", pa.int8()))),
        (pa.list_view(pa.int8()), pa.list_(pa.field("element", pa.int8()))),
        (pa.large_list_view(pa.string_view()), pa.list_(pa.field("element", pa.string()))),
        (pa.run_end_encoded(pa.int16(), pa.large_string()), pa.string()),
        (pa.uuid(), pa.binary()),
        (pa.json_(), pa.string()),
        (pa.bool8(), pa.bool_()),
    ],
)
def test_wider_spellings_become_canonical(arrow: pa.DataType, canonical: pa.DataType) -> None:
    assert types.canonical(arrow) == canonical


@pytest.mark.parametrize(
    ("arrow", "advice"),
    [
        (pa.uint64(), r"DECIMAL\(20,0\)"),
        (pa.uint8(), "SMALLINT"),
        (pa.time64("us"), "BIGINT"),
        (pa.null(), "the type that its values will have"),
        (pa.decimal256(50, 2), "at most 38"),
        (pa.duration("us"), "section 3"),
        (pa.struct([]), "section 3"),
    ],
)
def test_types_without_a_counterpart_are_refused_with_advice(arrow: pa.DataType, advice: str) -> None:
    with pytest.raises(Unsupported, match=advice):
        types.canonical(arrow)
    with pytest.raises(InvalidRequest, match="column 'c'.*" + advice) as caught:
        Schema.from_arrow(pa.schema([("c", arrow)]))
    assert caught.value.code == "unsupported-type"


@pytest.mark.parametrize("delta", ["variant", "interval year", "decimal(3)", "void"])
def test_delta_types_of_later_versions_are_refused(delta: str) -> None:
    with pytest.raises(Unsupported, match="not supported"):
        types.from_delta(delta)


@pytest.mark.parametrize("sql", ["INTERVAL DAY", "VARIANT", "DECIMAL(39,1)", "DECIMAL(5,6)", "TIME", "ARRAY", "OBJECT"])
def test_sql_types_that_are_not_ours_are_refused(sql: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_type(sql)


def test_names_of_other_databases_are_refused_and_not_guessed() -> None:
    """Found by a user: VARCHAR2 became STRING, INT8 became TINYINT, and TIMESTAMP WITHOUT TIME ZONE an instant."""
    elsewhere = "VARCHAR2 NVARCHAR2 NVARCHAR CLOB CHAR NUMBER INT1 INT2 INT4 INT8 INT64 FLOAT8 UINT MEDIUMINT BIT UUID"
    for name in (*elsewhere.split(), "INT UNSIGNED", "INT[]"):
        for sql in (name, f"ARRAY<{name}>", f"STRUCT<a: {name}>"):
            with pytest.raises(InvalidRequest, match=f"column 'c' has type {re.escape(name)}, which") as caught:
                parse_type(sql)
            assert caught.value.code == "unsupported-type"


def test_lengths_that_nothing_enforces_are_refused_with_advice() -> None:
    for sql, instead in {
        "VARCHAR(20)": "STRING",
        "INT(11)": "INT",
        "BINARY(16)": "BINARY",
        "TIMESTAMP(9)": "TIMESTAMP",
        "TIMESTAMP_NTZ(7)": "TIMESTAMP_NTZ",
    }.items():
        with pytest.raises(InvalidRequest, match=f"{re.escape(sql)}, and .*: write {instead}(\n|$)"):
            parse_type(sql)


def test_names_that_are_accepted_beside_sparks() -> None:
    for sql, same in {
        "BOOL": "BOOLEAN",
        "byte": "TINYINT",
        "SHORT": "SMALLINT",
        "INTEGER": "INT",
        "LONG": "BIGINT",
        "REAL": "FLOAT",
        "double  precision": "DOUBLE",
        "NUMERIC(12, 2)": "DECIMAL(12,2)",
        "DEC": "DECIMAL(10,0)",
        "TEXT": "STRING",
        "VARCHAR": "STRING",
        "BYTES": "BINARY",
        "TIMESTAMPTZ": "TIMESTAMP",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE": "TIMESTAMP",
        "TIMESTAMP_LTZ(3)": "TIMESTAMP",
        "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP_NTZ",
    }.items():
        assert parse_type(f"MAP<STRING, {sql}>") == parse_type(f"MAP<STRING, {same}>")


def test_a_bad_column_list_says_where() -> None:
    for text, declared in {
        "id BIGINT, name VARCHR": "at 'VARCHR'",
        "id BIGINT, name": "column 'name' has no type",
    }.items():
        with pytest.raises(InvalidRequest, match=declared):
            parse_columns(text)


@pytest.mark.parametrize("name", ["", " ", "\t\n", "_kind", "_Row", "_metadata.x"])
def test_bad_column_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Schema((Column(name, pa.int32()),))
    assert caught.value.code == "bad-column-name"


def test_names_are_compared_without_case() -> None:
    with pytest.raises(InvalidRequest, match="appears twice"):
        parse_columns("a INT, A STRING")


def test_a_schema_has_columns() -> None:
    with pytest.raises(InvalidRequest, match="no columns"):
        Schema(())


def test_unknown_columns_are_named_with_what_there_is() -> None:
    with pytest.raises(NotFound, match="'c'; the columns are a, b"):
        parse_columns("a INT, b STRING").column("c")
    with pytest.raises(NotFound, match=r"'ID' \(did you mean 'id'\?\); the columns are id, name"):
        parse_columns("id INT, name STRING").column("ID")


def test_key_columns_are_not_null_unless_declared() -> None:
    schema = parse_columns("a INT, b INT NULL, c INT", ["a", "b"])
    assert [column.nullable for column in schema] == [False, True, True]

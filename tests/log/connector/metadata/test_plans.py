"""Metadata columns of Kafka tables: keys, what is refused, and the layout of rows (METADATA.md)."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import log.connector
from filestore.errors import InvalidRequest, NotFound
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column
from filestore.model.sql import parse_table_columns
from filestore.model.table_columns import MetadataColumn, TableColumns
from filestore.model.types import TIMESTAMP, to_sql
from log.connector.metadata.keys import KAFKA_KEYS, MetadataKey, Origin, available_keys
from log.connector.metadata.plans import metadata_field, plan_read, plan_write

# The keys of two formats, as such formats might have them.
IN_KEY = {"schema": pa.string()}
IN_VALUE = {"source.table": pa.string(), "ingestion-timestamp": pa.timestamp("ms", tz="UTC"), "offset": pa.string()}
KEYS = available_keys(key_format=IN_KEY, value_format=IN_VALUE)
BY_NAME = {key.name: key for key in KEYS}
PAGE = (Path(log.connector.__file__).parent / "METADATA.md").read_text()

# Of each key a few values that survive as they are.
SAMPLES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["a", "é", None],
    pa.int32(): [0, 7, None],
    pa.int64(): [0, 2**40, None],
    TIMESTAMP: [0, 1_795_275_000_123_000, None],
    pa.map_(pa.string(), pa.binary()): [[("h", b"\xff")], [], None],
}


def array(draw: st.DrawFn, kind: pa.DataType, rows: int) -> pa.Array:
    values = draw(st.lists(st.sampled_from(SAMPLES[kind]), min_size=rows, max_size=rows))
    return pa.array(values, pa.int64()).cast(kind) if kind == TIMESTAMP else pa.array(values, kind)


@st.composite
def declared_columns(draw: st.DrawFn) -> TableColumns:
    """Physical columns and metadata columns in any order, each key in its own type, some of them called as keys are."""
    names = st.sampled_from(["a", "b", "offset", "timestamp", "topic", "schema", "metadata"])
    physical = draw(st.dictionaries(names, st.sampled_from([pa.string(), pa.int64()]), min_size=1, max_size=4))
    columns: list[Column | MetadataColumn] = [Column(name, kind) for name, kind in physical.items()]
    for number, key in enumerate(draw(st.lists(st.sampled_from(KEYS), max_size=6))):
        first = all(c.key != key.name for c in columns if isinstance(c, MetadataColumn))
        virtual = not (key.writable and first and draw(st.booleans()))
        columns.append(MetadataColumn(f"m{number}", key.type, key.name, virtual))
    return TableColumns(tuple(draw(st.permutations(columns))))


@given(declared_columns(), st.data())
def test_a_reader_gives_the_declared_rows(columns: TableColumns, data: st.DataObject) -> None:
    wanted = data.draw(st.none() | st.sets(st.sampled_from(columns.names), min_size=1))
    plan = plan_read(columns, KEYS, wanted)
    chosen = [c for c in columns.columns if wanted is None or c.name in wanted]
    used = {c.key for c in chosen if isinstance(c, MetadataColumn)}
    order = [c.name for c in chosen if isinstance(c, Column)]
    order += [metadata_field(key.name) for key in KEYS if key.name in used]
    assert plan.produced.names == order, "physical, key format, value format, connector"
    assert plan == pickle.loads(pickle.dumps(plan))
    for origin, prefix in (Origin.KEY_FORMAT, "key."), (Origin.VALUE_FORMAT, "value."), (Origin.CONNECTOR, ""):
        names = [prefix + name for name in plan.names(origin)]
        assert names == [key.name for key in KEYS if key.origin is origin and key.name in used]

    rows = data.draw(st.integers(0, 3))
    produced = pa.table([array(data.draw, f.type, rows) for f in plan.produced], schema=plan.produced)
    kinds = pa.array(["+U"] * rows, pa.string())
    if with_kinds := data.draw(st.booleans()):
        produced = produced.append_column(KIND_COLUMN, kinds)
    result = plan.read(produced)
    assert result.column_names == [c.name for c in chosen] + [KIND_COLUMN] * with_kinds
    assert result.num_rows == rows
    for column in chosen:
        origin_name = metadata_field(column.key) if isinstance(column, MetadataColumn) else column.name
        assert result.column(column.name).equals(produced.column(origin_name))


@given(declared_columns(), st.data())
def test_a_writer_takes_what_is_written(columns: TableColumns, data: st.DataObject) -> None:
    plan = plan_write(columns, KEYS)
    persisted = [c for c in columns.columns if isinstance(c, Column) or not c.virtual]
    keys = {c.key: c.name for c in persisted if isinstance(c, MetadataColumn)}
    assert plan.declared.names == [c.name for c in persisted]
    assert plan.produced.names == [*columns.physical.names, *(metadata_field(k.name) for k in KEYS if k.name in keys)]
    assert plan == pickle.loads(pickle.dumps(plan))

    rows = data.draw(st.integers(0, 3))
    chosen = [f for f in data.draw(st.permutations(list(plan.declared))) if data.draw(st.booleans())]
    kinds = pa.array(["+I"] * rows, pa.string())
    written = pa.table({f.name: array(data.draw, f.type, rows) for f in chosen} | {KIND_COLUMN: kinds})
    result = plan.write(written)
    result.validate(full=True)
    assert result.column_names == [*plan.produced.names, KIND_COLUMN]
    for field in plan.produced:
        name = next((column for key, column in keys.items() if metadata_field(key) == field.name), field.name)
        assert result.column(field.name).type == field.type
        if name in written.column_names:
            assert result.column(field.name).to_pylist() == written.column(name).to_pylist()
        else:
            assert result.column(field.name).null_count == rows, "left out: NULL"


def test_a_row_from_message_to_message() -> None:
    columns = parse_table_columns(
        "at BIGINT METADATA FROM 'timestamp', id BIGINT, `offset` INT METADATA VIRTUAL, "
        "origin STRING METADATA FROM 'value.source.table' VIRTUAL, h MAP<STRING, STRING> METADATA FROM 'headers'"
    )
    reader, writer = plan_read(columns, KEYS), plan_write(columns, KEYS)
    assert [f"{f.name} {f.type}" for f in reader.produced] == [
        "id int64",
        "_metadata.value.source.table string",
        "_metadata.headers map<string, binary>",
        "_metadata.offset int64",
        "_metadata.timestamp timestamp[us, tz=UTC]",
    ]
    message = {
        "id": [1],
        "_metadata.value.source.table": ["orders"],
        "_metadata.headers": pa.array([[("trace", b"x")]], KAFKA_KEYS[2].type),
        "_metadata.offset": [12],
        "_metadata.timestamp": pa.array([1_795_275_000_123], pa.timestamp("ms", tz="UTC")),
    }
    row = reader.read(pa.table(message))
    assert row.to_pylist() == [
        {"at": 1_795_275_000_123, "id": 1, "offset": 12, "origin": "orders", "h": [("trace", "x")]}
    ]
    assert row.schema.equals(reader.declared)
    back = writer.write(row.drop_columns(["offset", "origin"]))
    assert back.schema.equals(writer.produced)
    assert back.column_names == ["id", "_metadata.headers", "_metadata.timestamp"]
    assert back.to_pylist() == pa.table(message).select(back.column_names).to_pylist()


# ----------------------------------------------------------------------------------------------------------- keys


def test_keys_of_a_format_hide_those_of_the_connector() -> None:
    connector = (MetadataKey("value.a", pa.int64(), ""), MetadataKey("b", pa.int64(), ""))
    keys = available_keys(connector, key_format={"b": pa.string()}, value_format={"a": pa.string()})
    assert [(k.name, k.type, k.origin, k.own_name) for k in keys] == [
        ("key.b", pa.string(), Origin.KEY_FORMAT, "b"),
        ("value.a", pa.string(), Origin.VALUE_FORMAT, "a"),
        ("b", pa.int64(), Origin.CONNECTOR, "b"),
    ]
    assert not any(key.name.startswith(("key.", "value.")) for key in KAFKA_KEYS)


def test_the_page_lists_the_keys_of_kafka() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| `([A-Z<>, ]+)` \| (yes|no) \| (yes|no) \| (.*) \|$", PAGE, re.MULTILINE)
    yes = {True: "yes", False: "no"}
    assert rows == [
        (key.name, to_sql(key.type), yes[key.nullable], yes[key.writable], key.description) for key in KAFKA_KEYS
    ]


# -------------------------------------------------------------------------------------------------------- refused

DECLARED = {
    "o BIGINT METADATA FROM 'offst' VIRTUAL": (
        "unknown-metadata-key",
        "column 'o': there is no metadata 'offst' here. readable are key.schema, value.source.table, "
        "value.ingestion-timestamp, value.offset, topic, partition, headers, leader-epoch, offset, timestamp, "
        "timestamp-type; writable are headers, timestamp",
    ),
    "leader_epoch INT METADATA VIRTUAL": ("unknown-metadata-key", "here; FROM 'leader-epoch' may be meant"),
    "t STRING METADATA FROM 'source.table' VIRTUAL": ("unknown-metadata-key", "FROM 'value.source.table' may be meant"),
    "at INT METADATA FROM 'timestamp'": (
        "metadata-cast",
        "column 'at' is INT, to which the metadata 'timestamp' has no cast: declare the column TIMESTAMP, "
        "TIMESTAMP_NTZ, DATE, BIGINT (milliseconds since 1970) or STRING",
    ),
    "e INT NOT NULL METADATA FROM 'leader-epoch' VIRTUAL": ("metadata-nullable", "missing in some messages"),
}


@pytest.mark.parametrize("column", DECLARED)
def test_a_column_that_cannot_be_read_is_refused(column: str) -> None:
    code, words = DECLARED[column]
    columns = parse_table_columns(f"id BIGINT, {column}")
    for plan in (plan_read, plan_write):
        with pytest.raises(InvalidRequest) as caught:
            plan(columns, KEYS)
        assert caught.value.code == code
        assert words in caught.value.message


def test_without_metadata_that_can_be_written_the_message_says_so() -> None:
    keys = available_keys((), value_format={"a": pa.string()})
    with pytest.raises(InvalidRequest, match=r"readable are value\.a; none is writable"):
        plan_read(parse_table_columns("id BIGINT, a STRING METADATA"), keys)


def test_what_can_only_be_read_is_refused_when_it_is_written() -> None:
    columns = parse_table_columns("id BIGINT, `offset` BIGINT METADATA")
    assert plan_read(columns, KEYS).declared.names == ["id", "offset"], "as in Flink, the table can be made and read"
    with pytest.raises(InvalidRequest) as caught:
        plan_write(columns, KEYS)
    assert caught.value.code == "read-only-metadata"
    assert "`offset BIGINT METADATA FROM 'offset' VIRTUAL`" in caught.value.message
    assert "writable are headers, timestamp" in caught.value.message


WRITTEN = parse_table_columns(
    "id BIGINT NOT NULL, at TIMESTAMP NOT NULL METADATA FROM 'timestamp', `offset` BIGINT METADATA VIRTUAL, "
    "h MAP<STRING, BINARY> METADATA FROM 'headers'"
)
AT = pa.array([0], TIMESTAMP)

ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "virtual": ({"id": [1], "at": AT, "offset": [1]}, "virtual-column", "column 'offset' is VIRTUAL"),
    "unknown": ({"id": [1], "at": AT, "x": [1]}, "unknown-column", "the columns to write are id, at, h"),
    "missing": ({"id": [1]}, "missing-column", "lack the column 'at', which is NOT NULL"),
    "missing-physical": ({"at": AT}, "missing-column", "lack the column 'id'"),
    "type": ({"id": ["1"], "at": AT}, "bad-type", "column 'id' is int64 and the rows have string: cast them"),
    "null": ({"id": [1], "at": pa.nulls(1, TIMESTAMP)}, "null-value", "column 'at' is NOT NULL and holds 1 nulls"),
    "null-added": (
        {"id": [1, 2], "at": pa.nulls(2, TIMESTAMP), "_kind": ["-D", "+I"]},
        "null-value",
        "holds 1 nulls",
    ),
    "early": ({"id": [1], "at": pa.array([-1], TIMESTAMP)}, "bad-value", "in row 0 does not fit (it is before 1970"),
}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_that_cannot_be_written_are_refused(rows: str) -> None:
    columns, code, words = ROWS[rows]
    with pytest.raises(InvalidRequest) as caught:
        plan_write(WRITTEN, KEYS).write(pa.table(columns))
    assert caught.value.code == code
    assert words in caught.value.message


def test_a_column_given_twice_is_refused() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), AT, AT], ["id", "at", "at"])
    with pytest.raises(InvalidRequest, match="two columns 'at'"):
        plan_write(WRITTEN, KEYS).write(rows)


def test_deletes_need_no_metadata() -> None:
    rows = pa.table({"id": [1], "at": pa.nulls(1, TIMESTAMP), KIND_COLUMN: ["-D"]})
    assert plan_write(WRITTEN, KEYS).write(rows).to_pylist() == [
        {"id": 1, "_metadata.headers": None, "_metadata.timestamp": None, KIND_COLUMN: "-D"}
    ]


def test_a_value_that_does_not_fit_its_column() -> None:
    plan = plan_read(parse_table_columns("id BIGINT, o SMALLINT METADATA FROM 'offset' VIRTUAL"), KEYS)
    rows = pa.table({"id": [1, 2, 3], "_metadata.offset": [1, 40_000, 50_000]})
    with pytest.raises(InvalidRequest) as caught:
        plan.read(rows)
    assert caught.value.code == "bad-value"
    assert caught.value.message == (
        "column 'o' is SMALLINT and its metadata 'offset' is BIGINT: 40000 in row 1 does not fit (Integer value 40000 "
        "not in range: -32768 to 32767): declare the column BIGINT"
    )
    assert list(plan.unreadable(rows)) == [1, 2]
    assert plan.unreadable(rows)[1] == caught.value.message


def test_rows_that_cannot_be_read_are_all_found() -> None:
    columns = parse_table_columns(
        "id BIGINT, o TINYINT METADATA FROM 'offset' VIRTUAL, h MAP<STRING, STRING> METADATA FROM 'headers'"
    )
    plan = plan_read(columns, KEYS)
    headers = pa.array([[("a", b"x")], [("a", b"\xff")], None, [("a", b"\xff")], []], KAFKA_KEYS[2].type)
    rows = pa.table({"id": range(5), "_metadata.headers": headers, "_metadata.offset": [1, 200, 300, 4, 5]})
    wrong = plan.unreadable(rows)
    assert {row: message.split()[1] for row, message in wrong.items()} == {1: "'o'", 2: "'o'", 3: "'h'"}
    left = rows.filter(pa.array([row not in wrong for row in range(5)]))
    assert plan.read(left).column("id").to_pylist() == [0, 4]
    assert plan.unreadable(left) == {}


def test_only_columns_that_there_are_can_be_read() -> None:
    with pytest.raises(NotFound, match="the columns are id, at, offset, h"):
        plan_read(WRITTEN, KEYS, ["offst"])


def test_rows_without_columns_are_still_rows() -> None:
    rows = plan_read(WRITTEN, KEYS, []).read(pa.table({"id": [1, 2], KIND_COLUMN: ["+I", "-D"]}))
    assert (rows.column_names, rows.num_rows) == ([KIND_COLUMN], 2)
    assert plan_read(WRITTEN, KEYS, []).read(pa.table({"id": [1, 2]})).num_rows == 2

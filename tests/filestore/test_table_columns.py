"""Metadata columns as they are declared: in SQL, in Arrow, and refused (FLIP-107; log/connector/METADATA.md)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from filestore.model.sql import parse_columns, parse_table_columns, parse_type
from filestore.model.table_columns import MetadataColumn, TableColumns
from filestore.model.types import TIMESTAMP
from tests.filestore.arrays import data_types
from tests.filestore.test_types import COMMENTS, NAMES, _without_constraints, columns

KEYS = st.text("abc.-'\"\\é`", min_size=1, max_size=6)


def metadata_columns() -> st.SearchStrategy[MetadataColumn]:
    return st.builds(MetadataColumn, NAMES, data_types(), KEYS, st.booleans(), st.booleans(), COMMENTS)


@st.composite
def table_columns(draw: st.DrawFn) -> TableColumns:
    several = st.lists(columns() | metadata_columns(), max_size=5, unique_by=lambda c: c.name.lower())
    chosen = draw(several)
    written: set[str] = set()
    kept: list[Column | MetadataColumn] = []
    for column in chosen:
        if isinstance(column, MetadataColumn) and not column.virtual:
            if column.key in written:
                continue
            written.add(column.key)
        kept.append(column)
    kept.insert(draw(st.integers(0, len(kept))), Column("physical", pa.int64()))
    return TableColumns(tuple(kept))


@given(table_columns())
def test_columns_survive_sql(declared: TableColumns) -> None:
    again = parse_table_columns(declared.to_sql())
    for column, back in zip(declared.columns, again.columns, strict=True):
        assert (type(back), back.name, back.comment, back.nullable) == (
            type(column),
            column.name,
            column.comment,
            column.nullable,
        )
        assert back.type == _without_constraints(column.type)
        if isinstance(column, MetadataColumn) and isinstance(back, MetadataColumn):
            assert (back.key, back.virtual) == (column.key, column.virtual)
    assert again.names == declared.names


@given(table_columns())
def test_columns_survive_arrow(declared: TableColumns) -> None:
    again = TableColumns.from_arrow(declared.to_arrow())
    # An empty comment is none in Arrow, as in `Schema`.
    for column, back in zip(declared.columns, again.columns, strict=True):
        assert (back.comment or None) == (column.comment or None)
        assert isinstance(column, MetadataColumn) == isinstance(back, MetadataColumn)
        assert (back.name, back.type, back.nullable) == (column.name, column.type, column.nullable)
    assert [(m.key, m.virtual) for m in again.metadata] == [(m.key, m.virtual) for m in declared.metadata]


@given(table_columns())
def test_physical_columns_and_metadata_columns_are_all_columns(declared: TableColumns) -> None:
    apart = {c.name: c for c in (*declared.physical, *declared.metadata)}
    assert tuple(apart[name] for name in declared.names) == declared.columns


METADATA = [
    ("at TIMESTAMP METADATA", MetadataColumn("at", TIMESTAMP, "at")),
    ("at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'", MetadataColumn("at", TIMESTAMP, "timestamp")),
    ("at TIMESTAMP(3) WITH LOCAL TIME ZONE METADATA VIRTUAL", MetadataColumn("at", TIMESTAMP, "at", True)),
    ("`offset` BIGINT metadata virtual", MetadataColumn("offset", pa.int64(), "offset", True)),
    (
        "t STRING METADATA FROM 'value.source.table' VIRTUAL",
        MetadataColumn("t", pa.string(), "value.source.table", True),
    ),
    ('t STRING METADATA FROM "topic" VIRTUAL', MetadataColumn("t", pa.string(), "topic", True)),
    ("h MAP<STRING, BYTES> METADATA FROM 'headers'", MetadataColumn("h", parse_type("MAP<STRING, BINARY>"), "headers")),
    ("p INT NOT NULL METADATA VIRTUAL", MetadataColumn("p", pa.int32(), "p", True, nullable=False)),
    ("p INT METADATA NOT NULL", MetadataColumn("p", pa.int32(), "p", nullable=False)),
    (
        "p INT METADATA VIRTUAL COMMENT 'its METADATA'",
        MetadataColumn("p", pa.int32(), "p", True, comment="its METADATA"),
    ),
    ("p INT COMMENT 'c' METADATA FROM 'partition'", MetadataColumn("p", pa.int32(), "partition", comment="c")),
    ("p INT /* NOT NULL */ METADATA -- VIRTUAL\n FROM 'q'", MetadataColumn("p", pa.int32(), "q")),
    ("metadata INT METADATA", MetadataColumn("metadata", pa.int32(), "metadata")),
    ("virtual INT METADATA VIRTUAL", MetadataColumn("virtual", pa.int32(), "virtual", True)),
]


@pytest.mark.parametrize(("text", "column"), METADATA, ids=[text for text, _ in METADATA])
def test_a_metadata_column_in_sql(text: str, column: MetadataColumn) -> None:
    before, after = Column("a", pa.int64()), Column("b", pa.string(), comment="last")
    declared = parse_table_columns(f"a BIGINT, {text}, b STRING COMMENT 'last'")
    assert declared == TableColumns((before, column, after))
    assert declared.physical == Schema((before, after))
    with pytest.raises(InvalidRequest, match=f"{column.name!r}.* connector = kafka or upsert-kafka") as caught:
        parse_columns(f"a BIGINT, {text}, b STRING")
    assert caught.value.code == "metadata-column"


def test_the_words_are_still_names() -> None:
    text = (
        "metadata INT, `virtual` STRING COMMENT 'METADATA VIRTUAL', bytes BINARY, s STRUCT<metadata: INT, virtual: INT>"
    )
    schema = parse_columns(text)
    assert schema.names == ("metadata", "virtual", "bytes", "s")
    assert [f.name for f in schema.column("s").type] == ["metadata", "virtual"]
    assert parse_table_columns(text).physical == schema


REFUSED = {
    "x INT, a INT METADATA FROM timestamp": ("bad-column-list", "followed by 'timestamp' and not by a key in quotes"),
    "x INT, a INT METADATA FROM `timestamp`": ("bad-column-list", "not by a key in quotes"),
    "x INT, a INT METADATA FROM": ("bad-column-list", "not by a key in quotes"),
    "x INT, a INT METADATA FROM ''": ("metadata-key", "column 'a' has the metadata key ''"),
    "x INT, a INT METADATA FROM ' b'": ("metadata-key", "spaces at its ends"),
    "x INT, a INT METADATA FROM 'b' 'c'": ("bad-column-list", "cannot read the column list"),
    "x INT, a INT METADATA METADATA": ("bad-column-list", "second METADATA"),
    "x INT, a INT VIRTUAL": ("bad-column-list", "VIRTUAL is not directly after METADATA"),
    "x INT, a INT METADATA NOT NULL VIRTUAL": ("bad-column-list", "VIRTUAL is not directly after METADATA"),
    "x INT, a INT VIRTUAL METADATA": ("bad-column-list", "VIRTUAL is not directly after METADATA"),
    "x INT, a METADATA": ("bad-column-list", "column 'a' has no type"),
    "x INT, a METADATA INT": ("bad-column-list", "cannot read the column list"),
    "x INT, a INT `METADATA`": ("bad-column-list", "cannot read the column list"),
    "x STRUCT<a: INT METADATA>": ("bad-column-list", "the STRUCT field 'a' cannot be METADATA"),
    "x INT, a INT METADATA DEFAULT 1": ("bad-column-list", "'DEFAULT 1' is not supported"),
    "x INT, X INT METADATA": ("duplicate-column", "compared without case"),
    "x INT, _row INT METADATA": ("bad-column-name", "'_row'"),
    "x INT, a TIME METADATA": ("unsupported-type", "column 'a' has type TIME"),
    "a INT METADATA, b INT METADATA": ("empty-schema", "declare at least one"),
    "x INT, a INT METADATA FROM 'k', b INT METADATA FROM 'k'": ("metadata-key", "'a' and 'b' would both write"),
}


@pytest.mark.parametrize("text", REFUSED, ids=str)
def test_nonsense_is_refused_with_the_words_that_correct_it(text: str) -> None:
    code, words = REFUSED[text]
    with pytest.raises(InvalidRequest) as caught:
        parse_table_columns(text)
    assert caught.value.code == code
    assert words in caught.value.message


def test_one_key_may_be_read_twice() -> None:
    text = "x INT, a TIMESTAMP METADATA FROM 'timestamp', b BIGINT METADATA FROM 'timestamp' VIRTUAL"
    assert [m.key for m in parse_table_columns(text).metadata] == ["timestamp", "timestamp"]


def test_a_key_consists_of_physical_columns() -> None:
    declared = parse_table_columns("x INT, y INT, a INT METADATA", ["x", "a"])
    declared.check_physical("primary key", ["x"])
    with pytest.raises(InvalidRequest, match=r"primary key column 'a' is a METADATA column.* which are x, y") as caught:
        declared.check_physical("primary key", ["x", "a"])
    assert caught.value.code == "metadata-column"
    assert declared.required(["x"]) == declared
    assert [c.nullable for c in declared.columns] == [False, True, False]


@pytest.mark.parametrize(
    "field_metadata",
    [
        {b"tablestore.virtual": b"true"},
        {b"tablestore.metadata-key": b"k", b"tablestore.virtual": b"yes"},
    ],
)
def test_half_a_metadata_field_is_refused(field_metadata: dict[bytes, bytes]) -> None:
    with pytest.raises(InvalidRequest, match="metadata_column") as caught:
        TableColumns.from_arrow(pa.schema([("x", pa.int64()), pa.field("a", pa.int64(), metadata=field_metadata)]))
    assert caught.value.code == "metadata-key"


@pytest.mark.parametrize(
    "make",
    [
        lambda: MetadataColumn("a", pa.int64(), "k\0"),
        lambda: TableColumns.from_arrow(
            pa.schema([pa.field("a", pa.int8(), metadata={"tablestore.metadata-key": b"\xff"})])
        ),
    ],
)
def test_keys_are_text(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make()
    assert caught.value.code == "bad-text"


def test_a_type_alone_is_a_type() -> None:
    with pytest.raises(InvalidRequest, match="column 'a': 'INT METADATA' is not a type") as caught:
        parse_type("INT METADATA", "a")
    assert caught.value.code == "unsupported-type"

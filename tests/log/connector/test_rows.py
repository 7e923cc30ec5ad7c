"""Rows to messages and back: halves, kinds, metadata, and messages that cannot be read."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.types import to_sql
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import Incoming, RowDecoder
from log.connector.encoding import Outgoing, RowEncoder
from log.connector.formats.format import MILLISECONDS
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.log.connector.tables import KAFKA, UPSERT, declared

KEYED = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
PLAIN = "id BIGINT, v STRING"
BY_ID = {"key_format": "json", "key_fields": "id"}


def arrived(keys: list[bytes | None], values: list[bytes | None], **metadata: pa.Array) -> Incoming:
    return Incoming(keys, values, [0] * len(values), list(range(len(values))), metadata)


def read(table: KafkaDeclaration, keys: list[bytes | None], values: list[bytes | None], **metadata: pa.Array) -> Any:
    rows, malformed = RowDecoder.of(table).decode(arrived(keys, values, **metadata))
    assert rows.schema == RowDecoder.of(table).schema
    return rows.to_pylist(), {m.index: m.reason for m in malformed}


def there_and_back(table: KafkaDeclaration, rows: pa.Table) -> Any:
    sent = RowEncoder.of(table).encode(rows)
    found, bad = read(table, sent.keys or [None] * len(sent.values), sent.values)
    assert bad == {}
    return found


Change = tuple[int, str | None, str]
KINDS = st.sampled_from(["+I", "-U", "+U", "-D"])
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.none() | st.text(max_size=4), KINDS))


@given(CHANGES, st.sampled_from(["ALL", "EXCEPT_KEY"]), st.sampled_from(["json", "csv", "avro", "raw"]))
def test_upserts_are_what_became_of_each_key(
    changes: list[tuple[int, str | None, str]], include: str, key: str
) -> None:
    table = declared(KEYED, UPSERT, value_fields__include=include, key_format=key)
    rows = pa.table(
        {
            "id": pa.array([c[0] for c in changes], pa.int64()),
            "v": pa.array([c[1] for c in changes], pa.string()),
            "_kind": pa.array([c[2] for c in changes], pa.string()),
        }
    )
    expected = [
        {"id": k, "v": None, "_kind": "-D"} if kind == "-D" else {"id": k, "v": v, "_kind": "+U"}
        for k, v, kind in changes
        if kind != "-U"
    ]
    assert there_and_back(table, rows) == expected
    assert pickle.loads(pickle.dumps(RowEncoder.of(table))) == RowEncoder.of(table)


@given(st.sampled_from(KEY_TYPES), st.integers(2, 7), st.data())
def test_messages_without_a_key_are_placed_by_the_primary_key(
    kind: pa.DataType, partitions: int, data: st.DataObject
) -> None:
    table = declared(f"v INT, k {to_sql(kind)}, PRIMARY KEY (k) NOT ENFORCED", KAFKA, value_format="debezium-json")
    keys = data.draw(st.lists(st.sampled_from(data.draw(st.lists(key_values(kind), min_size=1))), min_size=1))
    rows = pa.table({"v": pa.array(range(len(keys)), pa.int32()), "k": pa.array(keys, kind)})
    found = [RowEncoder.of(table).encode(part, partitions) for part in (rows, rows.slice(len(keys) // 2))]
    for sent, own in zip(found, (keys, keys[len(keys) // 2 :]), strict=True):
        assert sent.keys is None
        assert sent.partitions is not None
        assert set(sent.partitions) <= set(range(partitions))
        assert sent.partitions == found[0].partitions[len(keys) - len(own) :]  # type: ignore[index]
    assert len({*zip(keys, found[0].partitions or (), strict=True)}) == len({*keys})


@pytest.mark.parametrize("options", [{}, BY_ID, {"value_format": "debezium-json", **BY_ID}])
def test_other_messages_are_where_the_client_puts_them(options: dict[str, str]) -> None:
    keyed = "value_format" in options
    table = declared(KEYED if keyed else PLAIN, KAFKA, **options)
    assert RowEncoder.of(table).encode(pa.table({"id": [1], "v": ["a"]}), 3).partitions is None


@given(CHANGES)
def test_an_upsert_without_a_value_is_refused_before_it_becomes_a_delete(
    changes: list[tuple[int, str | None, str]],
) -> None:
    table = declared(KEYED, UPSERT, value_fields__include="EXCEPT_KEY", value_format="raw")
    rows = pa.table(
        {
            "id": pa.array([c[0] for c in changes], pa.int64()),
            "v": pa.array([c[1] for c in changes], pa.string()),
            "_kind": pa.array([c[2] for c in changes], pa.string()),
        }
    )
    if nulls := sum(v is None and kind in ("+I", "+U") for _, v, kind in changes):
        with pytest.raises(InvalidRequest, match=f"column 'v' holds {nulls} nulls") as caught:
            RowEncoder.of(table).encode(rows)
        assert caught.value.code == "null-value"
    else:
        found = [(row["v"], row["_kind"]) for row in there_and_back(table, rows)]
        assert found == [(None, k) if k == "-D" else (v, "+U") for _, v, k in changes if k != "-U"]


@given(CHANGES, st.sampled_from(["debezium-json", "canal-json"]))
def test_changes_are_decoded_as_they_were(changes: list[Change], name: str) -> None:
    rows = pa.table(
        {
            "v": pa.array([c[1] for c in changes], pa.string()),
            "id": pa.array([c[0] for c in changes], pa.int64()),
            "_kind": pa.array([c[2] for c in changes], pa.string()),
        }
    )
    as_two = {"+I": "+I", "+U": "+I", "-U": "-D", "-D": "-D"}  # a message a row: FORMATS.md
    expected = [{"id": k, "v": v, "_kind": as_two[kind]} for k, v, kind in changes]
    assert there_and_back(declared(PLAIN, KAFKA, value_format=name), rows) == expected


@pytest.mark.parametrize("name", ["json", "csv", "avro"])
def test_rows_alone_are_inserts(name: str) -> None:
    rows = pa.table({"id": [1, 2], "v": ["a", None]})
    found = there_and_back(declared(PLAIN, KAFKA, value_format=name), rows)
    assert found == [{"id": 1, "v": "a", "_kind": "+I"}, {"id": 2, "v": None, "_kind": "+I"}]
    with pytest.raises(InvalidRequest) as caught:
        there_and_back(declared(PLAIN, KAFKA, value_format=name), rows.append_column("_kind", pa.array(["+I", "-D"])))
    assert caught.value.code == "format-kind"


def test_a_prefix_stands_in_the_table_alone() -> None:
    table = declared(
        "k_id BIGINT, id STRING, PRIMARY KEY (k_id) NOT ENFORCED",
        UPSERT,
        key_fields__prefix="k_",
        value_fields__include="EXCEPT_KEY",
    )
    sent = RowEncoder.of(table).encode(pa.table({"k_id": [7], "id": ["seven"]}))
    assert (sent.keys, sent.values) == ([b'{"id":7}'], [b'{"id":"seven"}'])
    assert read(table, sent.keys, sent.values)[0] == [{"k_id": 7, "id": "seven", "_kind": "+U"}]


def test_the_values_word_goes_before_the_keys_unless_they_must_agree() -> None:
    keys, values = [b'{"id":1}', b'{"id":2}'], [b'{"id":9,"v":"a"}', b'{"id":2,"v":"b"}']
    rows, bad = read(declared(PLAIN, KAFKA, **BY_ID), keys, values)
    assert ([row["id"] for row in rows], bad) == ([9, 2], {})
    rows, bad = read(declared(PLAIN, KAFKA, **BY_ID, fields_verify__integrity="true"), keys, values)
    assert [row["id"] for row in rows] == [2]
    assert bad == {0: "column 'id' differs between key and value"}


def test_messages_without_a_key_or_value() -> None:
    keys, values = [None, b'{"id":1}', None, b'{"id":2}'], [b'{"v":"a"}', None, None, b'{"v":"b"}']
    halves = {**BY_ID, "value_fields__include": "EXCEPT_KEY"}
    rows, bad = read(declared(PLAIN, KAFKA, **halves), keys, values)
    assert rows == [{"id": None, "v": "a", "_kind": "+I"}, {"id": 2, "v": "b", "_kind": "+I"}]
    assert bad == {}
    rows, bad = read(declared("id BIGINT NOT NULL, v STRING", KAFKA, **halves), keys, values)
    assert ([row["id"] for row in rows], sorted(bad)) == ([2], [0, 2])
    rows, bad = read(declared(KEYED, UPSERT, value_fields__include="EXCEPT_KEY"), keys, values)
    assert rows == [{"id": 1, "v": None, "_kind": "-D"}, {"id": 2, "v": "b", "_kind": "+U"}]
    assert bad == dict.fromkeys([0, 2], "it has no key, and an upsert needs one")


def test_what_cannot_be_read_touches_no_other_message() -> None:
    table = declared("id BIGINT, v STRING, at INT METADATA FROM 'offset' VIRTUAL, PRIMARY KEY (id)", UPSERT)
    keys = [b'{"id":0}', b"{", b'[{"id":2},{"id":2}]', b'{"id":3}', b'{"id":4}', b'{"id":5}', b"no"]
    values = [b'{"id":0}', b'{"id":1}', b'{"id":2}', b"nonsense", None, b'{"id":5}', None]
    offsets = pa.array([0, 1, 2, 3, 4, 1 << 40, 6], pa.int64())
    rows, bad = read(table, keys, values, offset=offsets)
    assert rows == [
        {"id": 0, "v": None, "at": 0, "_kind": "+U"},
        {"id": 4, "v": None, "at": 4, "_kind": "-D"},
    ]
    assert sorted(bad) == [1, 2, 3, 5, 6]
    assert bad[2] == "its key holds more than one row"
    assert "does not fit" in bad[5]


def test_metadata_of_formats_and_messages_comes_to_the_rows_of_its_message() -> None:
    table = declared(
        "at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL, id BIGINT, "
        "src STRING METADATA FROM 'value.source.table' VIRTUAL",
        KAFKA,
        value_format="debezium-json",
    )
    update = {"before": {"id": 1}, "after": {"id": 2}, "source": {"table": "items"}, "op": "u"}
    insert = {"before": None, "after": {"id": 3}, "source": {"table": "others"}, "op": "c"}
    values = [json.dumps(update).encode(), None, b"bad", json.dumps(insert).encode()]
    rows, bad = read(table, [None] * 4, values, timestamp=pa.array([1000, 2000, 3000, 4000]).cast(MILLISECONDS))
    assert [(r["_kind"], r["id"], r["src"], r["at"].timestamp()) for r in rows] == [
        ("-U", 1, "items", 1),
        ("+U", 2, "items", 1),
        ("+I", 3, "others", 4),
    ]
    assert list(rows[0]) == ["at", "id", "src", "_kind"]
    assert list(bad) == [2]


def test_some_columns_are_read_and_no_metadata_that_is_not_needed() -> None:
    table = declared("id BIGINT, v STRING, o BIGINT METADATA FROM 'offset' VIRTUAL, PRIMARY KEY (id)", UPSERT)
    decoder = RowDecoder.of(table, ["v"])
    assert decoder.wanted == ()
    rows, _ = decoder.decode(arrived([b'{"id":1}', b'{"id":2}'], [b'{"id":1,"v":"a"}', None]))
    assert rows.to_pylist() == [{"v": "a", "_kind": "+U"}, {"v": None, "_kind": "-D"}]


def test_timestamps_and_headers_are_written() -> None:
    table = declared(
        "id BIGINT, at TIMESTAMP METADATA FROM 'timestamp', h MAP<STRING, STRING> METADATA FROM 'headers', "
        "o BIGINT METADATA FROM 'offset' VIRTUAL",
        KAFKA,
    )
    headers = pa.array([[("a", "x"), ("b", None)], None], pa.map_(pa.string(), pa.string()))
    times = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    sent = RowEncoder.of(table).encode(pa.table({"id": [1, 2], "at": times, "h": headers}))
    assert sent == Outgoing(
        None,
        [b'{"id":1}', b'{"id":2}'],
        [1_700_000_000_000, None],
        [[("a", b"x"), ("b", None)], None],
    )
    with pytest.raises(InvalidRequest, match="takes for the time of writing"):
        RowEncoder.of(table).encode(pa.table({"id": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))}))


def test_metadata_that_is_read_only_is_not_written_around() -> None:
    table = declared("id BIGINT, o BIGINT METADATA FROM 'offset'", KAFKA)
    with pytest.raises(InvalidRequest) as caught:
        RowEncoder.of(table)
    assert caught.value.code == "read-only-metadata"


def test_metadata_that_do_not_fit_concern_who_reads_them() -> None:
    table = declared("id BIGINT, h STRING METADATA FROM 'timestamp-type', small TINYINT METADATA FROM 'offset'", KAFKA)
    values = [b'{"id":1}', b'{"id":2}']
    for columns, ids, bad in (
        (None, [1], [1]),
        (["id", "small"], [1], [1]),
        (["id", "h"], [1, 2], []),
        (["id"], [1, 2], []),
    ):
        decoder = RowDecoder.of(table, columns)
        there = {"offset": pa.array([7, 200]), "timestamp-type": pa.array(["CreateTime"] * 2)}
        rows, malformed = decoder.decode(arrived([None, None], values, **{k: there[k] for k in decoder.wanted}))
        assert (rows["id"].to_pylist(), [m.index for m in malformed]) == (ids, bad)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ({"id": [None], "v": ["a"]}, "null-value"),
        ({"id": [None], "v": ["a"], "_kind": ["-D"]}, "null-value"),
        ({"id": [1], "v": ["a"], "_kind": ["+X"]}, "format-kind"),
        ({"id": [1], "v": ["a"], "_kind": [None]}, "format-kind"),
        ({"id": [1], "w": ["a"]}, "unknown-column"),
        ({"v": ["a"]}, "missing-column"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: dict[str, list[Any]], code: str) -> None:
    types = {"id": pa.int64()}
    table = pa.table({name: pa.array(values, types.get(name, pa.string())) for name, values in rows.items()})
    with pytest.raises(InvalidRequest) as caught:
        RowEncoder.of(declared(KEYED, UPSERT)).encode(table)
    assert caught.value.code == code


def test_a_delete_may_have_its_key_alone() -> None:
    table = declared("id BIGINT, v STRING NOT NULL, PRIMARY KEY (id) NOT ENFORCED", UPSERT)
    rows = pa.table({"id": [1], "v": pa.nulls(1, pa.string()), "_kind": ["-D"]})
    assert there_and_back(table, rows) == [{"id": 1, "v": None, "_kind": "-D"}]
    with pytest.raises(InvalidRequest) as caught:
        RowEncoder.of(table).encode(rows.set_column(2, "_kind", pa.array(["+U"])))
    assert caught.value.code == "null-value"

"""``debezium-json``: messages as Debezium's connectors write them, and as Flink does."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.rowkind import RowKind
from log.connector.formats.json.format import check_json_type
from tests.log.connector.formats.rows import holdable, opened, plain

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("weight", pa.decimal128(10, 2))]
)
MYSQL_SOURCE = {
    "version": "1.9.7.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1700000000000,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "table": "items",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": None,
}
POSTGRES_SOURCE = {
    "version": "2.5.0.Final",
    "connector": "postgresql",
    "name": "pg",
    "ts_ms": 1700000000001,
    "snapshot": "last",
    "db": "postgres",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "items",
    "txId": 571,
    "lsn": 24023128,
    "xmin": None,
}


def change(op: str, before: Any, after: Any, source: Any = MYSQL_SOURCE) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 1700000000500,
        "transaction": None,
    }


def row(key: int, name: str | None = "pen", weight: Any = 5.18) -> dict[str, Any]:
    return {"id": key, "name": name, "weight": weight}


def message(document: Any) -> bytes:
    return json.dumps(document).encode()


def decoded(values: list[bytes | None], metadata: list[str] | None = None, **options: str) -> list[Any]:
    found = opened("debezium-json", SCHEMA, **options).decode(values, metadata or [])
    assert found.malformed == ()
    changes = zip(found.index, found.kinds.to_pylist(), found.rows.to_pylist(), strict=True)
    return [(i, kind, *values.values()) for i, kind, values in changes]


def test_mysql() -> None:
    values = [
        message(change("r", None, row(1))),
        message(change("c", None, row(2, None))),
        message(change("u", row(2, None), row(2, "cup", "5.1"))),
        message(change("d", row(1), None)),
        None,
    ]
    pen = (Decimal("5.18"),)
    assert decoded(values) == [
        (0, "+I", 1, "pen", *pen),
        (1, "+I", 2, None, *pen),
        (2, "-U", 2, None, *pen),
        (2, "+U", 2, "cup", Decimal("5.10")),
        (3, "-D", 1, "pen", *pen),
    ]
    found = opened("debezium-json", SCHEMA).decode(values)
    assert found.tombstones.tolist() == [4]


def test_postgresql_without_full_replica_identity() -> None:
    values = [
        message(change("u", None, row(1), POSTGRES_SOURCE)),
        message(change("d", row(1, None, None), None, POSTGRES_SOURCE)),
    ]
    assert decoded(values) == [(0, "+U", 1, "pen", Decimal("5.18")), (1, "-D", 1, None, None)]


def test_truncations_and_messages_have_no_rows() -> None:
    assert decoded([message(change("t", None, None)), message({"op": "m", "message": {"prefix": "x"}})]) == []


@pytest.mark.parametrize("included", [False, True])
def test_metadata(included: bool) -> None:
    keys = [
        "schema",
        "ingestion-timestamp",
        "source.timestamp",
        "source.database",
        "source.schema",
        "source.table",
        "source.properties",
    ]
    documents: list[Any] = [
        change("u", row(1), row(1), POSTGRES_SOURCE),
        {"op": "c", "after": row(2)},
        change("c", None, row(3), {"db": "d", "collection": "shelf"}),
    ]
    if included:
        documents = [{"schema": {"type": "struct", "fields": []}, "payload": d} for d in documents]
    options = {"schema_include": str(included)}
    values = [message(d) for d in documents]
    found = opened("debezium-json", SCHEMA, **options).decode(values, keys)
    schema = '{"type": "struct", "fields": []}' if included else None
    ingested = dt.datetime(2023, 11, 14, 22, 13, 20, 500000, dt.UTC)
    created = dt.datetime(2023, 11, 14, 22, 13, 20, 1000, dt.UTC)
    first, second, third, fourth = (list(r.values())[3:] for r in found.rows.to_pylist())
    assert first == second
    assert first[:6] == [schema, ingested, created, "postgres", "public", "items"]
    properties = dict(first[6])
    assert properties["lsn"] == "24023128"
    assert properties["xmin"] is None
    assert properties.keys() == POSTGRES_SOURCE.keys()
    assert third == [schema, None, None, None, None, None, None]
    assert fourth == [schema, ingested, None, "d", None, "shelf", [("db", "d"), ("collection", "shelf")]]
    # Each key alone gives the same, though other members are parsed.
    for place, key in enumerate(keys):
        alone = opened("debezium-json", SCHEMA, **options).decode(values, [key])
        assert alone.rows.column(3).to_pylist() == found.rows.column(3 + place).to_pylist()
        assert alone.rows.schema.field(3).type == found.rows.schema.field(3 + place).type


def test_with_schema() -> None:
    values = [message({"schema": {"type": "struct"}, "payload": change("c", None, row(1))})]
    assert decoded([*values], schema_include="true") == [(0, "+I", 1, "pen", Decimal("5.18"))]
    plain_ = opened("debezium-json", SCHEMA).decode([*values])
    assert [m.reason for m in plain_.malformed] == ["a Debezium message has the unknown op None"]
    wrapped = opened("debezium-json", SCHEMA, schema_include="true").decode([message(change("c", None, row(1)))])
    assert "'payload' is missing" in wrapped.malformed[0].reason


BROKEN = [
    (b"{}", "unknown op None"),
    (message(change("x", None, row(1))), "unknown op 'x'"),
    (message(change("c", None, None)), "lacks 'after' with op 'c'"),
    (message(change("u", row(1), None)), "lacks 'after' with op 'u'"),
    (message(change("d", None, None)), "lacks 'before' with op 'd'"),
    (message(change("c", None, row(1, "a", "heavy"))), 'after.weight: "heavy" is no DECIMAL(10,2)'),
    (message(change("u", row(1, "a", []), row(1))), "before.weight: [] is no DECIMAL(10,2)"),
    (message(change("c", None, {"name": "x"})), "column 'id' is NOT NULL and has no value"),
    (message(change("c", None, 7)), "after: 7 is no STRUCT<"),
    (message(change("c", None, row(1)))[:-1], "not JSON"),
]


def test_broken_messages_spoil_no_others() -> None:
    values: list[bytes | None] = []
    for broken, _ in BROKEN:
        values += [message(change("u", row(1), row(2)))] * 15 + [broken]
    found = opened("debezium-json", SCHEMA).decode(values)
    assert [values[m.index] for m in found.malformed] == [broken for broken, _ in BROKEN]
    for bad, (_, reason) in zip(found.malformed, BROKEN, strict=True):
        assert reason in bad.reason
    assert found.rows["id"].to_pylist() == [1, 2] * 15 * len(BROKEN)


@given(holdable(check_json_type), st.booleans(), st.data())
def test_changes_survive_as_flink_writes_them(rows: pa.Table, included: bool, data: st.DataObject) -> None:
    size = rows.num_rows
    kinds = data.draw(st.lists(st.sampled_from(list(RowKind)), min_size=size, max_size=size))
    format_ = opened("debezium-json", rows.schema, schema_include=str(included))
    messages = format_.encode(rows.append_column("_kind", pa.array([str(k) for k in kinds], pa.string())))
    found = format_.decode(messages)
    assert found.malformed == ()
    assert plain(found.rows) == plain(rows)
    assert found.kinds.to_pylist() == ["+I" if kind.adds else "-D" for kind in kinds]
    for one, kind in zip(messages, kinds, strict=True):
        document = json.loads(one or b"")
        if included:
            fields = {f["field"]: f for f in document["schema"]["fields"]}
            assert [f["field"] for f in fields["after"]["fields"]] == rows.schema.names
            document = document["payload"]
        assert list(document) == ["before", "after", "op"]
        assert document["op"] == ("c" if kind.adds else "d")


def test_what_is_written() -> None:
    rows = pa.table({"id": [1, 1], "name": ["a", None], "weight": pa.nulls(2), "_kind": ["+U", "-U"]})
    assert opened("debezium-json", SCHEMA).encode(rows) == [
        b'{"before":null,"after":{"id":1,"name":"a","weight":null},"op":"c"}',
        b'{"before":{"id":1,"name":null,"weight":null},"after":null,"op":"d"}',
    ]


def test_unknown_metadata_names_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match=r"no metadata 'source\.db': it has schema, ingestion-timestamp"):
        opened("debezium-json", SCHEMA).decode([], ["source.db"])


def test_the_schema_of_maps_is_written() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    row = pa.table({"m": pa.array([[("a", 1)]], schema.field("m").type)})
    (message,) = opened("debezium-json", schema, schema_include="true").encode(row)
    (column,) = json.loads(message)["schema"]["fields"][1]["fields"]
    assert column == {
        "type": "map",
        "keys": {"type": "string", "optional": False},
        "values": {"type": "int64", "optional": True},
        "optional": True,
        "field": "m",
    }

"""``canal-json``: messages as Canal writes them from MySQL, and as Flink does."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.model.rowkind import RowKind
from log.connector.formats.json.format import check_json_type
from tests.log.connector.formats.rows import holdable, opened, plain

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("weight", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
    ]
)


def change(kind: str, data: Any, old: Any = None, **others: Any) -> bytes:
    """All values are texts, as Canal has them."""
    document = {
        "data": data,
        "database": "inventory",
        "es": 1700000000000,
        "id": 9,
        "isDdl": False,
        "mysqlType": {"id": "bigint(20)", "name": "varchar(255)"},
        "old": old,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": -5, "name": 12},
        "table": "items",
        "ts": 1700000000500,
        "type": kind,
    }
    return json.dumps({**document, **others}).encode()


def row(key: int, **others: Any) -> dict[str, Any]:
    values = {"name": "pen", "weight": "5.18", "at": "2020-12-30 12:13:14", "day": "2020-12-30", "ok": "1"}
    return {"id": str(key), **values, **others}


REST = (Decimal("5.18"), dt.datetime(2020, 12, 30, 12, 13, 14), dt.date(2020, 12, 30), True)


def decoded(values: list[bytes | None], **options: str) -> list[Any]:
    found = opened("canal-json", SCHEMA, **options).decode(values)
    assert found.malformed == ()
    changes = zip(found.index, found.kinds.to_pylist(), found.rows.to_pylist(), strict=True)
    return [(i, kind, *values.values()) for i, kind, values in changes]


def test_changes_of_many_rows() -> None:
    values = [
        change("INSERT", [row(1), row(2)]),
        None,
        change("UPDATE", [row(1, name="cup"), row(2, name=None)], [{"name": "pen"}, {"name": "pen"}]),
        change("DELETE", [row(1, name="cup")]),
    ]
    assert decoded(values) == [
        (0, "+I", 1, "pen", *REST),
        (0, "+I", 2, "pen", *REST),
        (2, "-U", 1, "pen", *REST),
        (2, "+U", 1, "cup", *REST),
        (2, "-U", 2, "pen", *REST),
        (2, "+U", 2, None, *REST),
        (3, "-D", 1, "cup", *REST),
    ]


def test_a_null_in_old_was_null_and_an_absent_one_has_not_changed() -> None:
    values = [
        change("UPDATE", [row(1), row(2), row(3)], [{"name": None}, {"weight": "1"}, {}]),
        change("UPDATE", [row(4, name=None)], [{"ok": "0"}]),
    ]
    name_and_weight = [(r[3], r[4]) for r in decoded([*values]) if r[1] == "-U"]
    assert name_and_weight == [(None, REST[0]), ("pen", Decimal(1)), ("pen", REST[0]), (None, REST[0])]


def test_numbers_may_be_numbers() -> None:
    values = [change("INSERT", [row(1) | {"id": 7, "weight": 1.5}]), change("INSERT", [row(1)])]
    assert [(r[2], r[4]) for r in decoded([*values])] == [(7, Decimal("1.50")), (1, REST[0])]


@pytest.mark.parametrize("kind", ["CREATE", "ALTER", "TRUNCATE", "RENAME", "QUERY", "ERASE"])
def test_statements_have_no_rows(kind: str) -> None:
    assert decoded([change(kind, None, sql="…", isDdl=kind != "QUERY")]) == []


def test_only_matching_databases_and_tables_are_read() -> None:
    values = [
        change("INSERT", [row(1)]),
        change("INSERT", [{"id": "no number at all"}], table="other"),
        change("INSERT", [row(2)], table="items_2"),
        change("INSERT", [row(3)], database="inventory2"),
        change("INSERT", [row(4)], database=None),
        b"{",
    ]
    found = opened("canal-json", SCHEMA, database__include="inventory", table__include="items(_[0-9])?").decode(
        [*values]
    )
    assert found.rows["id"].to_pylist() == [1, 2]
    assert found.index.tolist() == [0, 2]
    assert [m.index for m in found.malformed] == [5]


def test_metadata() -> None:
    keys = ["database", "table", "sql-type", "pk-names", "ingestion-timestamp"]
    values = [change("UPDATE", [row(1)], [{}]), b'{"data":[{"id":"2"}],"type":"INSERT"}']
    found = opened("canal-json", SCHEMA).decode(values, keys)
    before, after, bare = (list(r.values())[6:] for r in found.rows.to_pylist())
    moment = dt.datetime(2023, 11, 14, 22, 13, 20, 500000, dt.UTC)
    assert before == after == ["inventory", "items", [("id", -5), ("name", 12)], ["id"], moment]
    assert bare == [None] * 5
    for place, key in enumerate(keys):
        alone = opened("canal-json", SCHEMA).decode(values, [key])
        assert alone.rows.column(6).to_pylist() == found.rows.column(6 + place).to_pylist()


BROKEN = [
    (b"{}", "unknown type None"),
    (change("MERGE", [row(1)]), "unknown type 'MERGE'"),
    (change("INSERT", None), "lacks 'data' with type INSERT"),
    (change("UPDATE", [row(1)]), "lacks 'old' with type UPDATE"),
    (change("UPDATE", [row(1)], [{}, {}]), "1 rows in 'data' and 2 in 'old'"),
    (change("INSERT", [row(1), row(2, weight="heavy")]), 'data[1].weight: "heavy" is no DECIMAL(10,2)'),
    (change("INSERT", [row(1, weight="123456789.00")]), "is no DECIMAL(10,2)"),
    (change("INSERT", [{"name": "x"}]), "column 'id' is NOT NULL and has no value"),
    (change("INSERT", row(1)), "is no ARRAY<"),
    (change("INSERT", [row(1)])[:-1], "not JSON"),
]


def test_broken_messages_spoil_no_others() -> None:
    values: list[bytes | None] = []
    for broken, _ in BROKEN:
        values += [change("UPDATE", [row(1)], [{"name": None}])] * 15 + [broken]
    found = opened("canal-json", SCHEMA).decode(values)
    assert [values[m.index] for m in found.malformed] == [broken for broken, _ in BROKEN]
    for bad, (_, reason) in zip(found.malformed, BROKEN, strict=True):
        assert reason in bad.reason
    assert found.rows["name"].to_pylist() == [None, "pen"] * 15 * len(BROKEN)


@given(holdable(check_json_type), st.data())
def test_changes_survive_as_flink_writes_them(rows: pa.Table, data: st.DataObject) -> None:
    size = rows.num_rows
    kinds = data.draw(st.lists(st.sampled_from(list(RowKind)), min_size=size, max_size=size))
    format_ = opened("canal-json", rows.schema)
    messages = format_.encode(rows.append_column("_kind", pa.array([str(k) for k in kinds], pa.string())))
    found = format_.decode(messages)
    assert found.malformed == ()
    assert plain(found.rows) == plain(rows)
    assert found.kinds.to_pylist() == ["+I" if kind.adds else "-D" for kind in kinds]
    for one, kind in zip(messages, kinds, strict=True):
        document = json.loads(one or b"")
        assert list(document) == ["data", "type"]
        assert document["type"] == ("INSERT" if kind.adds else "DELETE")


@given(st.data())
def test_updates_are_laid_over_the_rows_after(data: st.DataObject) -> None:
    """Against a loop over the members of ``old``."""
    names = SCHEMA.names[1:3]
    texts = {"name": st.none() | st.text(max_size=3), "weight": st.none() | st.sampled_from(["1.00", "2.50"])}
    values, expected = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        afters = data.draw(st.lists(st.fixed_dictionaries(texts), min_size=0, max_size=3))
        olds = [data.draw(st.fixed_dictionaries({}, optional=texts)) for _ in afters]
        values.append(change("UPDATE", [{"id": "1", **a} for a in afters], olds))
        for after, old in zip(afters, olds, strict=True):
            expected += [[{**after, **old}[n] for n in names], [after[n] for n in names]]
    found = opened("canal-json", SCHEMA).decode([*values])
    texts_found = [
        [name, None if weight is None else str(weight)]
        for name, weight in zip(found.rows["name"].to_pylist(), found.rows["weight"].to_pylist(), strict=True)
    ]
    assert texts_found == expected

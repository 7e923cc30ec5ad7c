"""Every wrong creation: 400, a stable code, a sentence that says what to do, and nothing made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog_service.client import connect
from catalog_service.server import serving
from catalog_service.use_cases.definitions import definition_of
from catalog_service.wire.tables import CreateTable
from filestore.errors import InvalidRequest
from tests.catalog_service.faults import check
from tests.depth import sampled

ID = {"name": "id", "type": "BIGINT"}
DAY = {"name": "day", "type": "DATE"}
TABLE: dict[str, Any] = {"name": "orders", "columns": [ID, DAY], "primary_key": ["id"]}

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    # changes to TABLE; code; what the sentence must say
    "name-space": ({"name": "my orders"}, "bad-name", "letters, digits and underscores"),
    "name-path": ({"name": "../orders"}, "bad-name", "'../orders'"),
    "name-digit": ({"name": "2024"}, "bad-name", "begins with a letter"),
    "name-long": ({"name": "a" * 101}, "bad-name", "at most 100"),
    "name-empty": ({"name": ""}, "bad-name", "begins with a letter"),
    "option-unknown": ({"options": {"buckets": "4"}}, "unknown-option", "did you mean 'bucket'"),
    "option-value": ({"options": {"bucket": "many"}}, "bad-option-value", "whole number from 1"),
    "option-zero": ({"options": {"bucket": 0}}, "bad-option-value", "whole number from 1"),
    "key-lacks-partition": ({"partition_by": ["day"]}, "key-lacks-partition", "add 'day' to the primary key"),
    "key-nullable": ({"columns": [ID | {"nullable": True}]}, "nullable-key", "NOT NULL"),
    "key-nullable-sql": ({"columns": None, "schema": "id BIGINT NULL"}, "nullable-key", "NOT NULL"),
    "key-unknown": ({"primary_key": ["nr"]}, "unknown-column", "its columns are id, day"),
    "key-twice": ({"primary_key": ["id", "id"]}, "duplicate-column", "twice"),
    "key-type": ({"columns": [ID | {"type": "DOUBLE"}]}, "key-type", "use a string"),
    "key-nested": ({"columns": [ID | {"type": "ARRAY<INT>"}]}, "key-type", "use a string"),
    "partition-unknown": ({"primary_key": [], "partition_by": ["d"]}, "unknown-column", "id, day"),
    "partition-all": ({"primary_key": [], "partition_by": ["id", "day"]}, "partition-type", "leave at least one"),
    "type-unknown": ({"columns": [ID | {"type": "MONEY"}]}, "unsupported-type", "column 'id'"),
    "type-interval": ({"columns": [ID | {"type": "INTERVAL"}]}, "unsupported-type", "DECIMAL(p,s)"),
    "type-decimal": ({"columns": [ID | {"type": "DECIMAL(39,2)"}]}, "unsupported-type", "1 to 38"),
    "type-more": ({"columns": [ID | {"type": "INT, b INT"}]}, "unsupported-type", "the type alone"),
    "type-not-null": ({"columns": [ID | {"type": "INT NOT NULL"}]}, "unsupported-type", "'nullable'"),
    "type-comment": ({"columns": [ID | {"type": "INT COMMENT 'x'"}]}, "unsupported-type", "'comment'"),
    "type-escape": ({"columns": [ID | {"type": "INT) USING csv --"}]}, "unsupported-type", "column 'id'"),
    "type-letters": ({"columns": [ID | {"type": "DECIMAL(a,b)"}]}, "unsupported-type", "DECIMAL"),
    "type-empty": ({"columns": [ID | {"type": ""}]}, "unsupported-type", "column 'id'"),
    "column-twice": ({"columns": [ID, {"name": "ID", "type": "INT"}]}, "duplicate-column", "rename"),
    "field-twice": ({"columns": [ID, {"name": "s", "type": "STRUCT<a: INT, A: INT>"}]}, "duplicate-column", "rename"),
    "field-twice-deep": (
        {"columns": None, "schema": "id BIGINT, s ARRAY<MAP<INT, STRUCT<x: STRUCT<a: INT, a: DATE>>>>"},
        "duplicate-column",
        "'s.x'",
    ),
    "field-empty": ({"columns": [ID, {"name": "s", "type": "STRUCT<` `: INT>"}]}, "bad-column-name", "name it"),
    "text-table": ({"name": "a\ud800"}, "bad-text", "U+D800"),
    "text-nul": ({"name": "a\0"}, "bad-text", "U+0000"),
    "text-column": ({"columns": [ID, {"name": "a\udfff", "type": "INT"}]}, "bad-text", "U+DFFF"),
    "text-type": ({"columns": [ID, {"name": "a", "type": "STRUCT<`\ud800`: INT>"}]}, "bad-text", "U+D800"),
    "text-column-comment": ({"columns": [ID | {"comment": "\ud83d"}]}, "bad-text", "U+D83D"),
    "text-schema": ({"columns": None, "schema": "id BIGINT COMMENT '\ud800'"}, "bad-text", "U+D800"),
    "text-comment": ({"comment": "a\0b"}, "bad-text", "U+0000"),
    "text-option": ({"options": {"bucket": "\ud800"}}, "bad-text", "U+D800"),
    "text-option-name": ({"options": {"log.kafka.properties.\ud800": "1"}}, "bad-text", "U+D800"),
    "text-member": ({"\ud800": 1}, "bad-text", "U+D800"),
    "column-reserved": ({"columns": [ID, {"name": "_kind", "type": "INT"}]}, "bad-column-name", "rename"),
    "column-blank": ({"columns": [ID, {"name": " ", "type": "INT"}]}, "bad-column-name", "empty"),
    "column-empty": ({"columns": [ID, {"name": "", "type": "INT"}]}, "bad-column-name", "empty"),
    "columns-none": ({"columns": [], "primary_key": []}, "empty-schema", "at least one"),
    "schema-garbage": ({"columns": None, "schema": "id id id"}, "bad-column-list", "NOT NULL"),
    "schema-empty": ({"columns": None, "schema": ""}, "bad-column-list", ""),
    "schema-escape": (
        {"columns": None, "schema": "id INT) LOCATION '/x' --"},
        "bad-column-list",
        "cannot read the column list",
    ),
    "schema-default": ({"columns": None, "schema": "id INT DEFAULT 1"}, "bad-column-list", "not supported"),
    "schema-both": ({"schema": "id BIGINT"}, "invalid-request", "either 'columns' or 'schema'"),
    "schema-neither": ({"columns": None}, "invalid-request", "either 'columns' or 'schema'"),
    "schema-metadata": (
        {"columns": None, "schema": "id BIGINT, day DATE, at TIMESTAMP METADATA FROM 'timestamp'"},
        "metadata-column",
        "connector = kafka or upsert-kafka",
    ),
    "column-metadata": ({"columns": [ID, {"name": "at", "type": "INT", "metadata": {}}]}, "metadata-column", "'at'"),
    "column-metadata-in-type": (
        {"columns": [ID, {"name": "at", "type": "INT METADATA"}]},
        "unsupported-type",
        "METADATA in 'nullable', 'comment' and 'metadata'",
    ),
    "member-unknown": ({"primary_keys": ["id"]}, "invalid-request", "primary_keys"),
    "member-type": ({"primary_key": "id"}, "invalid-request", "primary_key"),
    "bucket-key": ({"options": {"bucket": 2, "bucket-key": "day"}}, "bucket-key", "primary key"),
    "sequence-unknown": ({"options": {"sequence.field": "ts"}}, "unknown-column", "id, day"),
    "kafka-servers": ({"options": {"log.system": "kafka"}}, "log-servers", "broker:9092"),
    "log-system": ({"options": {"log.system": "pulsar"}}, "bad-option-value", "kafka"),
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all cases: none of them leaves anything."""
    return str(tmp_path_factory.mktemp("refused") / "warehouse")


@pytest.fixture(scope="module")
def api(warehouse: str) -> Iterator[httpx.Client]:
    with serving(warehouse) as url, httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=60) as client:
        yield client


@pytest.mark.few(24)
@pytest.mark.parametrize(("changes", "code", "words"), sampled(CASES.values(), 4, names=3), ids=CASES.keys())
def test_a_wrong_table_is_refused_and_nothing_is_made(
    api: httpx.Client, warehouse: str, changes: dict[str, Any], code: str, words: str
) -> None:
    api.post("/databases", json={"name": "shop"}, params={"if_not_exists": True}).raise_for_status()
    # dumped here: httpx would send no half of a surrogate pair, and JSON can
    body = json.dumps({**TABLE, **changes})
    response = api.post("/databases/shop/tables", content=body, headers={"Content-Type": "application/json"})
    problem = response.json()
    assert response.status_code == 400, problem
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["type"] == "urn:tablestore:problem:invalid-request"
    assert problem["status"] == 400
    assert problem["instance"] == "/api/v1/databases/shop/tables"
    assert problem["code"] == code
    assert words in problem["detail"]
    assert api.get("/databases/shop/tables").json() == {"tables": [], "next_page_token": None}
    assert not os.path.exists(f"{warehouse}/shop")
    assert check(warehouse) == []


@pytest.mark.parametrize("name", ["My Shop", "a/b", "", "7", "ä"])
def test_a_wrong_database_is_refused(api: httpx.Client, name: str) -> None:
    before = api.get("/databases").json()
    response = api.post("/databases", json={"name": name})
    assert (response.status_code, response.json()["code"]) == (400, "bad-name")
    assert api.get("/databases").json() == before


@pytest.mark.parametrize("comment", ["\ud800", "a\0"])
def test_a_databases_comment_that_is_no_text_is_refused(api: httpx.Client, warehouse: str, comment: str) -> None:
    before = api.get("/databases").json()
    body = json.dumps({"name": "other", "comment": comment})
    response = api.post("/databases", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (400, "bad-text")
    with connect(warehouse) as embedded, pytest.raises(InvalidRequest) as caught:
        embedded.create_database("other", comment=comment)
    assert caught.value.code == "bad-text"
    assert api.get("/databases").json() == before


def test_a_misspelt_body_names_each_place(api: httpx.Client) -> None:
    response = api.post("/databases/shop/tables", json={"nme": "x", "columns": [{"name": 1}]})
    assert response.status_code == 400
    pointers = {e["pointer"] for e in response.json()["errors"]}
    assert {"/body/name", "/body/nme", "/body/columns/0/type", "/body/columns/0/name"} <= pointers


def test_a_key_column_is_not_null_unless_it_says_otherwise() -> None:
    for request in (
        CreateTable(**TABLE),
        CreateTable(name="orders", sql_schema="id BIGINT, day DATE", primary_key=("id",)),
    ):
        definition = definition_of(request)
        assert [c.nullable for c in definition.schema] == [False, True]


def test_options_may_be_json_numbers_and_booleans() -> None:
    request = CreateTable.model_validate(TABLE | {"options": {"bucket": 4, "log.kafka.properties.x": True}})
    assert request.options == {"bucket": "4", "log.kafka.properties.x": "true"}


_WORDS = "INT BIGINT STRING DECIMAL ARRAY MAP STRUCT a b: id 10 1.5 NULL COMMENT < > ( ) , ' \" ` ; -- /* : ä"
_PIECES = st.sampled_from([*_WORDS.split(), "NOT NULL", " ", "\n", "\x00"])


@settings(max_examples=settings.default.max_examples * 7, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_PIECES, max_size=12).map("".join), st.booleans())
def test_no_text_of_a_type_is_more_than_a_wrong_request(text: str, as_column: bool) -> None:
    fields: dict[str, Any] = {"columns": [{"name": "id", "type": text}]} if as_column else {"schema": text}
    try:
        definition = definition_of(CreateTable.model_validate({"name": "t", **fields}))
    except InvalidRequest as error:
        assert error.message
    else:
        assert len(definition.schema.columns) == 1 or not as_column


def test_a_thousand_brackets_are_a_wrong_request() -> None:
    text = "ARRAY<" * 1000 + "INT" + ">" * 1000
    with pytest.raises(InvalidRequest):
        definition_of(CreateTable.model_validate({"name": "t", "schema": f"id {text}"}))

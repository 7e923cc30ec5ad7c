"""Columns of any name that the rule of names allows, through every door: each finds the rows that were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tablestore
from catalog_service.server import serving
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.names import listed, names_in, quoted
from filestore.model.partition_time import TimestampPattern
from filestore.model.sql import parse_columns, parse_table_columns
from log.connector.declaration import KafkaDeclaration
from tablestore import Store, Table
from tablestore.shell.engines import Engine
from tablestore.shell.session import Session
from tablestore.shell.spark_engine import SparkEngine
from tests.depth import sampled
from tests.names import NAMES, NAMES_OF_A_TABLE, PEOPLES
from tests.tables import assert_healthy
from tests.warehouses import assert_same_rows, changes, replay, rows, warehouse

Row = dict[str, Any]


def in_double_quotes(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@given(st.lists(NAMES, min_size=1))
def test_a_list_of_names_is_read_as_it_was_written(names: list[str]) -> None:
    assert names_in(listed(names)) == tuple(names)
    assert names_in(" ; ".join(map(quoted, names)), ",;") == tuple(names)
    plain = [name for name in names if name == name.strip() and not set(name) & set(",;`")]
    assert listed(plain) == ",".join(plain)  # as versions that know no backticks write and read it


@pytest.mark.parametrize("text", ["", " ", "a,", ",a", "a,,b", "` `", "a,` `"])
def test_a_list_with_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="backticks"):
        names_in(text)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_columns_of_any_name_are_read_as_they_were_written(mode: str) -> None:
    """Five of sixty public files had a name with a blank or parentheses, and CREATE refused it."""

    @settings(max_examples=max(4, settings.default.max_examples // 12))
    @given(NAMES_OF_A_TABLE, st.booleans())
    @example(["US Gross", "Beak Length (mm)", "a,b", "`日`"], True)
    def found(names: list[str], evolves_by_rewrite: bool) -> None:
        with warehouse() as store:
            check_doors(store, names, mode, "rewrite" if evolves_by_rewrite else "metadata")

    found()


def check_doors(store: Store, names: list[str], mode: str, evolution: str) -> None:
    """Makes a table whose key, partition, sequence and value have these names, and goes through each door."""
    key, part, order, value = names
    columns = f"{quoted(part)} STRING, {quoted(key)} BIGINT, {quoted(order)} INT, n INT"
    columns += f", {quoted(value)} STRUCT<{quoted(key)}: INT>"
    options = {"write-mode": mode, "changelog-producer": "lookup", "sequence.field": order, "bucket": "2"}
    options |= {"bucket-key": listed([key]), "schema.evolution-mode": evolution}
    options |= {"log.system": "none"} if mode == "merge-on-read" else {}
    table = store.create_table("shop.t", columns, primary_key=[part, key], partition_by=[part], options=options)
    first = {part: "x y", key: 1, order: 1, value: {key: 7}, "n": 1}
    second = {part: "=,/", key: 2, order: 1, value: None, "n": 2}
    table.write([first, second])
    table.write([{**first, order: 0, "n": 9}, {**second, order: 2, "n": 3}])  # the first is late
    second |= {order: 2, "n": 3}
    check_reads(table, [first, second], names)
    if mode == "merge-on-write":
        table.update({value: {key: 8}}, f"{quoted(key)} = 1")
        first[value] = {key: 8}
        table.delete(f"{in_double_quotes(part)} = '=,/'")
        assert rows(table) == [first]
        table.write([second])
    table.alter(f"ADD COLUMN {quoted(order + ' new')} STRING COMMENT 'x' AFTER {quoted(key)}")
    table.alter(f"RENAME COLUMN {quoted(value)} TO {quoted('the ' + value)}", f"DROP COLUMN {quoted(order + ' new')}")
    for row in (first, second):
        row["the " + value] = row.pop(value)
    table.compact(full=True)
    check_reads(table, [first, second], [key, part, order, "the " + value])
    table.write([{**first, "n": 5, order: 3}], overwrite={part: "x y"})
    first |= {"n": 5, order: 3}
    check_reads(table, [first, second], [key, part, order, "the " + value])
    assert_healthy(table.filestore)
    assert assert_same_rows(table, others=evolution == "rewrite") == rows(table)
    with pytest.raises(InvalidRequest) as refused:
        table.alter(f"DROP COLUMN {quoted(order)}")
    assert refused.value.code == "column-in-use"


def check_reads(table: Table, expected: list[Row], names: list[str]) -> None:
    key, part, order, value = names
    by_key = {row[key]: row for row in expected}
    (first,) = [row for row in expected if row[key] == 1]

    def keyed(found: list[Row]) -> dict[int, Row]:
        return {row[key]: row for row in found}

    assert keyed(rows(table)) == by_key
    assert keyed(replay(changes(table, version=0, mode="changelog"), [key])) == by_key
    for quote in (quoted, in_double_quotes):
        where = f"{quote(key)} = 1 AND {quote(part)} = 'x y' AND {quote(order)} >= 0 AND {quote(value)} IS NOT NULL"
        assert table.scan([value, "n"], where=where).to_pylist() == [{value: first[value], "n": first["n"]}]
    assert table.get([{key: 1, part: "x y"}], [value, key]).to_pylist() == [{value: first[value], key: 1}]
    asked = pa.table({"k": [1], "p": ["x y"], order: ["mine"]})
    assert table.lookup(asked, {"p": part, "k": key}, columns=["n"]).to_pylist() == [
        {"k": 1, "p": "x y", order: "mine", "n": first["n"]}
    ]
    partitions = table.system("partitions").to_arrow().to_pylist()
    assert {dict(row["partition"])[part] for row in partitions} == {"x y", "=,/"}


@pytest.mark.slow
def test_joins_of_columns_of_any_name_are_maintained() -> None:
    @settings(max_examples=max(4, settings.default.max_examples // 12))
    @given(NAMES_OF_A_TABLE)
    @example(["US Gross", "Beak Length (mm)", "a,b", "`日`"])
    def found(names: list[str]) -> None:
        key, other, value, renamed = names
        with warehouse() as store:
            left = store.create_table(
                "shop.l", f"{quoted(key)} BIGINT, {quoted(other)} INT, {quoted(value)} STRING", primary_key=[key]
            )
            right = store.create_table("shop.r", f"{quoted(value)} INT, {quoted(key)} STRING", primary_key=[value])
            select = [f"l.{quoted(key)}", f"l.{quoted(value)}", f"r.{quoted(key)} AS {quoted(renamed)}"]
            view = store.maintain_join("shop.j", left="shop.l", right="shop.r", on=other, kind="left", select=select)
            left.write([{key: 1, other: 1, value: "x"}, {key: 2, other: 2, value: "y"}])
            right.write([{value: 1, key: "one"}])
            view.refresh()
            right.write([{value: 2, key: "two"}])
            view.refresh()
            joined = store.table("shop.j")
            assert {row[key]: row for row in rows(joined)} == {
                1: {key: 1, value: "x", renamed: "one"},
                2: {key: 2, value: "y", renamed: "two"},
            }
            assert not store.examine("shop.j").findings

    found()


@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(NAMES_OF_A_TABLE)
@example(["a,b", "`a`", "a.b", " a "])
def test_options_name_columns_of_any_name(names: list[str]) -> None:
    one, two, three, four = names
    columns = f"id BIGINT, {', '.join(f'{quoted(name)} INT' for name in names)}"
    options = {
        "merge-engine": "partial-update",
        f"fields.{listed([one, two])}.sequence-group": listed([three, four]),
        f"fields.{quoted(four)}.aggregate-function": "sum",
    }
    definition = TableDefinition.of(parse_columns(columns, ["id"]), ["id"], options=options)
    assert definition.options.sequence_groups() == [((one, two), (three, four))]
    assert definition.options.field_columns() == [four]
    assert definition.merging.fields[four].function == "sum"
    kept = TableDefinition.from_delta(
        {
            "configuration": definition.to_properties(),
            "schemaString": json.dumps(definition.schema.to_delta()),
            "partitionColumns": [],
        }
    )
    assert kept.options.sequence_groups() == [((one, two), (three, four))]
    again = parse_columns(definition.schema.to_sql(), ["id"])
    assert again == definition.schema
    if not {four} & set(PEOPLES):
        return
    pattern = TimestampPattern.parse(f"${{{quoted(four)}}}-${{{quoted(one)}}}")
    assert pattern.columns == [four, one]


def test_an_option_of_a_column_is_given_once() -> None:
    """Two spellings of one option were two options, of which one won."""
    options = {"merge-engine": "aggregation"}
    options |= {"fields.n.aggregate-function": "sum", "fields.`n`.aggregate-function": "max"}
    with pytest.raises(InvalidRequest, match="twice") as refused:
        TableDefinition.of(parse_columns("id BIGINT, n INT", ["id"]), ["id"], options=options)
    assert refused.value.code == "bad-option-value"


@pytest.mark.parametrize("name", PEOPLES)
def test_topics_have_columns_of_any_name_and_avro_says_which_it_refuses(name: str) -> None:
    columns = parse_table_columns(f"id BIGINT NOT NULL, {quoted(name)} STRING NOT NULL")
    options = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "b:1", "value.format": "json"}
    for separator in (",", ";"):
        keys = {"key.format": "json", "key.fields": f"id{separator}{listed([name])}"}
        assert KafkaDeclaration.of(columns, options=options | keys).key_fields == ("id", name)
    with pytest.raises(InvalidRequest, match="Avro's are ASCII letters") as refused:
        KafkaDeclaration.of(columns, options=options | {"value.format": "avro"})
    assert refused.value.code == "format-type"
    assert repr(name) in refused.value.message


@pytest.mark.parametrize("name", sampled(PEOPLES, fast=8, test=4))
def test_polars_runs_statements_about_columns_of_any_name(store: Store, name: str) -> None:
    table = store.create_table("shop.t", f"id BIGINT, {quoted(name)} INT", primary_key=["id"])
    table.write([{"id": 1, name: 5}, {"id": 2, name: 7}])
    session = Session(store, _no_spark, database="shop", engine=Engine.POLARS)

    def asked(statement: str) -> list[Row]:
        return [row for part in session.run(statement).batches for row in part.to_pylist()]

    column = quoted(name)
    assert asked(f"SELECT id, {column} FROM t WHERE {column} > 5") == [{"id": 2, name: 7}]
    assert asked(f"SELECT sum({column}) AS {quoted('sum of ' + name)} FROM t") == [{"sum of " + name: 12}]
    assert asked(f"SELECT {column} AS x FROM t ORDER BY {column} DESC LIMIT 1") == [{"x": 7}]
    assert asked(f"SELECT {column}, count(*) AS c FROM t GROUP BY {column} HAVING {column} = 5") == [{name: 5, "c": 1}]


def _no_spark(_: str | None) -> SparkEngine:
    raise AssertionError("Spark is not needed")


def test_a_service_keeps_names_as_they_are(tmp_path: Path) -> None:
    with serving(str(tmp_path)) as url, tablestore.connect(url) as store:
        store.create_database("shop")
        names = PEOPLES
        columns = pa.schema([pa.field(name, pa.string()) for name in names])
        key = names[2]
        table = store.create_table("shop.t", columns, primary_key=[key], options={"bucket-key": listed([key])})
        row = {name: str(number) for number, name in enumerate(names)}
        table.write([row])
        assert rows(table) == [row]
        table.alter(f"RENAME COLUMN {quoted(names[0])} TO {quoted(names[0] + ' (b)')}")
        assert store.table("shop.t").schema.names == [names[0] + " (b)", *names[1:]]

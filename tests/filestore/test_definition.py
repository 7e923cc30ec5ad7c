"""Definitions are checked as a whole, and come back from Delta's metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from filestore.delta.actions import metadata_action
from filestore.errors import Corrupt, InvalidRequest
from filestore.model.changes import SetOption
from filestore.model.definition import TableDefinition
from filestore.model.evolution import evolve
from filestore.model.schema import Schema
from filestore.model.sql import parse_columns
from filestore.model.table_options import TableOptions

COLUMNS = (
    "id BIGINT NOT NULL, name STRING NOT NULL, day DATE NOT NULL, price DOUBLE, s INT, b BINARY NOT NULL, "
    "tags ARRAY<STRING>"
)


def of(key: tuple[str, ...] = (), partition_by: tuple[str, ...] = (), **options: str) -> TableDefinition:
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    return TableDefinition.of(parse_columns(COLUMNS), key, partition_by, named)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("unknown-column", {"key": ("nix",)}),
        ("log-consistency", {"log_consistency": "eventual"}),
        ("log-consistency", {"key": ("id",), "log_consistency": "eventual", "write__mode": "merge-on-read"}),
        ("unknown-column", {"partition_by": ("nix",)}),
        ("unknown-column", {"bucket__key": "nix"}),
        ("unknown-column", {"key": ("id",), "sequence_field": "nix"}),
        ("duplicate-column", {"key": ("id", "id")}),
        ("duplicate-column", {"partition_by": ("day", "day")}),
        ("nullable-key", {"key": ("s",)}),
        ("key-lacks-partition", {"key": ("id",), "partition_by": ("day",)}),
        ("key-is-partition", {"key": ("day",), "partition_by": ("day",)}),
        ("partition-type", {"partition_by": ("price",)}),
        ("partition-type", {"partition_by": ("tags",)}),
        ("partition-type", {"partition_by": ("b",)}),
        ("bucket-key", {"bucket__key": "price"}),
        ("bucket-key", {"key": ("id",), "bucket__key": "name"}),
        ("sequence-field", {"sequence_field": "s"}),
        ("sequence-field", {"key": ("id",), "sequence_field": "tags"}),
        ("sequence-field", {"key": ("id", "name"), "sequence_field": "name"}),
        ("log-servers", {"log_system": "kafka"}),
    ],
)
def test_what_does_not_hold_together_is_refused(code: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        of(**arguments)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "value"),
    [("view.removed-events", "keep"), ("view.expired-versions", "oldest"), ("view.setting.spark.sql.ansi.enabled", "")],
)
def test_a_table_that_is_no_view_has_no_options_of_views(name: str, value: str) -> None:
    """They were accepted, and one of them could not be taken back afterwards."""
    sentence = f"option '{name}' is for maintained views, and a table without view.query is none: leave it out"
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        of(("id",), **{name: value})
    assert caught.value.code == "maintained-view"
    with pytest.raises(InvalidRequest, match=sentence):
        evolve(of(("id",)), [SetOption(name, value)], lambda: "new")


def test_a_table_that_has_an_option_of_views_can_be_changed() -> None:
    """Older versions accepted such options."""
    stray = replace(of(("id",)), options=TableOptions.parse({"view.removed-events": "keep"}))
    changed = evolve(stray, [SetOption("checkpoint.interval", "5")], lambda: "new").definition
    assert changed.options.as_dict() == {"view.removed-events": "keep", "checkpoint.interval": "5"}


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int32())])
def test_keys_need_exact_equality(kind: pa.DataType) -> None:
    schema = Schema.from_arrow(pa.schema([pa.field("k", kind, nullable=False), ("v", pa.int32())]))
    with pytest.raises(InvalidRequest) as caught:
        TableDefinition.of(schema, ["k"])
    assert caught.value.code == "key-type"


def test_not_every_column_can_be_a_partition() -> None:
    with pytest.raises(InvalidRequest, match="leave at least one"):
        TableDefinition.of(parse_columns("a INT, b INT"), (), ("a", "b"))


def test_a_table_of_floats_has_one_bucket() -> None:
    schema = parse_columns("a DOUBLE")
    assert TableDefinition.of(schema).bucket_key == ()
    with pytest.raises(InvalidRequest, match="bucket = 1"):
        TableDefinition.of(schema, options={"bucket": "2"})


@pytest.mark.parametrize(
    ("arguments", "bucket_key", "sort_key"),
    [
        ({"key": ("name", "id")}, ("name", "id"), ("name", "id")),
        ({"key": ("day", "name", "id"), "partition_by": ("day",)}, ("name", "id"), ("name", "id")),
        ({"key": ("name", "id"), "bucket__key": "id"}, ("id",), ("name", "id")),
        ({}, ("id", "name", "day", "s", "b"), ()),
        ({"partition_by": ("day",)}, ("id", "name", "s", "b"), ()),
    ],
)
def test_bucket_key_and_sort_key(
    arguments: dict[str, Any], bucket_key: tuple[str, ...], sort_key: tuple[str, ...]
) -> None:
    definition = of(**arguments)
    assert definition.bucket_key == bucket_key
    assert definition.sort_key == sort_key


def test_definitions_survive_delta() -> None:
    definition = TableDefinition.of(
        parse_columns(COLUMNS), ("day", "id"), ("day",), {"bucket": "7", "sequence.field": "s"}, "it's é"
    )
    metadata = metadata_action(definition, "an-id", 1)["metaData"]
    assert TableDefinition.from_delta(metadata) == definition


def test_a_foreign_delta_table_is_refused() -> None:
    with pytest.raises(Corrupt, match="did not create it"):
        TableDefinition.from_delta({"id": "x", "configuration": {}})

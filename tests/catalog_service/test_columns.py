"""Columns across HTTP: what a client declares is what the service has, metadata columns too."""

from __future__ import annotations

import pytest
from hypothesis import given

from catalog_service.use_cases.definitions import columns_of, definition_of
from catalog_service.wire.columns import ColumnInfo, column_infos
from catalog_service.wire.tables import CreateTable
from filestore.errors import InvalidRequest
from filestore.model.sql import parse_table_columns
from filestore.model.table_columns import MetadataColumn, TableColumns
from tests.filestore.test_table_columns import table_columns

TEXT = "id BIGINT, at TIMESTAMP METADATA FROM 'timestamp', `offset` BIGINT NOT NULL METADATA VIRTUAL COMMENT 'o', v INT"


def across(request: CreateTable) -> CreateTable:
    return CreateTable.model_validate_json(request.model_dump_json(by_alias=True, exclude_none=True))


@given(table_columns())
def test_columns_survive_the_wire(declared: TableColumns) -> None:
    spoken = parse_table_columns(declared.to_sql())  # SQL has no word for elements that are not null
    assert columns_of(across(CreateTable.of("t", declared))) == spoken


def test_columns_are_one_however_they_are_declared() -> None:
    columns = [
        {"name": "id", "type": "BIGINT"},
        {"name": "at", "type": "TIMESTAMP", "metadata": {"key": "timestamp"}},
        {"name": "offset", "type": "BIGINT", "nullable": False, "comment": "o", "metadata": {"virtual": True}},
        {"name": "v", "type": "INT"},
    ]
    declared = parse_table_columns(TEXT, ["id"])
    assert columns_of(CreateTable(name="t", columns=columns, primary_key=("id",))) == declared
    assert columns_of(across(CreateTable.of("t", TEXT, primary_key=["id"]))) == declared
    assert columns_of(across(CreateTable.of("t", declared, primary_key=["id"]))) == declared


def test_answers_say_which_columns_are_metadata() -> None:
    infos = column_infos(parse_table_columns(TEXT))
    assert [ColumnInfo.model_validate_json(info.model_dump_json()) for info in infos] == infos
    assert [info.metadata and (info.metadata.key, info.metadata.virtual) for info in infos] == [
        None,
        ("timestamp", False),
        ("offset", True),
        None,
    ]


def test_an_unknown_member_is_refused() -> None:
    with pytest.raises(ValueError, match="virtul"):
        CreateTable.model_validate(
            {"name": "t", "columns": [{"name": "a", "type": "INT", "metadata": {"virtul": True}}]}
        )


@pytest.mark.parametrize(("primary_key", "partition_by"), [(("at",), ()), ((), ("at",))])
def test_a_key_or_partition_of_metadata_is_refused(primary_key: tuple[str], partition_by: tuple[str]) -> None:
    for request in (
        CreateTable.of("t", TEXT, primary_key=primary_key, partition_by=partition_by),
        CreateTable.of("t", parse_table_columns(TEXT), primary_key=primary_key, partition_by=partition_by),
    ):
        with pytest.raises(InvalidRequest, match="'at' is a METADATA column") as caught:
            columns_of(request)
        assert caught.value.code == "metadata-column"


def test_a_managed_table_has_no_metadata_columns() -> None:
    for request in (CreateTable.of("t", TEXT), CreateTable.of("t", parse_table_columns(TEXT))):
        with pytest.raises(InvalidRequest, match="column 'at' is declared METADATA, which a managed table cannot have"):
            definition_of(across(request))
    physical = TableColumns(tuple(c for c in parse_table_columns(TEXT).columns if not isinstance(c, MetadataColumn)))
    assert definition_of(CreateTable.of("t", physical)).schema == physical.physical

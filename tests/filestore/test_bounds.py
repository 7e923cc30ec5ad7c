"""The limits of a definition are checked, however it is passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.client import connect
from catalog_service.wire.tables import AlterTable, CreateTable
from filestore.errors import InvalidRequest
from filestore.model import bounds
from filestore.model.bounds import Extent, check_extent
from filestore.model.changes import AddColumn, DropColumn, SetComment
from filestore.model.definition import TableDefinition
from filestore.model.evolution import evolve
from filestore.model.schema import Column
from filestore.model.sql import parse_columns
from log.connector.declaration import KafkaDeclaration

LONG = "c" * (bounds.COMMENT_MAX + 1)
NESTED = "STRUCT<a: " * bounds.DEPTH_MAX + "INT" + ">" * bounds.DEPTH_MAX
MANY = ", ".join(f"c{i} INT" for i in range(bounds.COLUMNS_MAX + 1))
FIELDS = "id BIGINT, s STRUCT<" + ", ".join(f"c{i}: INT" for i in range(bounds.COLUMNS_MAX - 1)) + ">"
SECRET = {"log.kafka.properties.ssl.key.pem": "x" * (bounds.OPTION_VALUE_MAX + 1)}
PILE = {f"log.kafka.properties.x{i}": "x" * 9_990 for i in range(51)}

CASES = {
    "comment": ({"comment": LONG}, "too-long"),
    "column-comment": ({"schema": f"id BIGINT COMMENT '{LONG}'"}, "too-long"),
    "name": ({"schema": f"{'c' * (bounds.FIELD_NAME_MAX + 1)} INT"}, "too-long"),
    "field-name": ({"schema": f"id INT, s STRUCT<{'c' * (bounds.FIELD_NAME_MAX + 1)}: INT>"}, "too-long"),
    "columns": ({"schema": MANY}, "too-many-columns"),
    "fields": ({"schema": FIELDS}, "too-many-columns"),
    "depth": ({"schema": f"id BIGINT, s {NESTED}"}, "too-deep"),
    "value": ({"options": SECRET}, "too-long"),
    "options": ({"options": PILE}, "too-many-options"),
}


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize(("changes", "code"), CASES.values(), ids=CASES.keys())
def test_the_embedded_catalog_has_the_bounds_of_the_service(tmp_path, changes: dict, code: str) -> None:
    with connect(str(tmp_path)) as catalog:
        catalog.create_database("shop")
        asked = {"name": "t", "schema": "id BIGINT", **changes}
        with pytest.raises(InvalidRequest) as caught:
            catalog.create_table("shop", CreateTable.model_validate(asked))
        assert caught.value.code == code
        assert len(caught.value.message) < 300
        assert catalog.list_tables("shop") == []


def test_columns_are_counted_before_their_types_are_read(tmp_path) -> None:
    columns = [{"name": "c", "type": "not read"}] * (bounds.COLUMNS_MAX + 1)
    with connect(str(tmp_path)) as catalog, pytest.raises(InvalidRequest) as caught:
        catalog.create_database("shop")
        catalog.create_table("shop", CreateTable.model_validate({"name": "t", "columns": columns}))
    assert caught.value.code == "too-many-columns"


def test_changes_and_databases_have_them_too(tmp_path) -> None:
    with connect(str(tmp_path)) as catalog:
        with pytest.raises(InvalidRequest, match="shorten"):
            catalog.create_database("shop", comment=LONG)
        catalog.create_database("shop", comment=LONG[1:])
        catalog.create_table("shop", CreateTable.of("t", "id BIGINT", comment=LONG[1:]))
        for change in (f"COMMENT '{LONG}'", f"ALTER COLUMN id COMMENT '{LONG}'", f"ADD COLUMN s {NESTED}"):
            with pytest.raises(InvalidRequest) as caught:
                catalog.alter_table("shop", "t", AlterTable(changes=(change,)))
            assert caught.value.code in ("too-long", "too-deep")
        assert catalog.get_table("shop", "t", with_snapshot=True).current_snapshot.version == 0


def test_a_declared_topic_has_them_too() -> None:
    options = {"connector": "kafka", "topic": "t", "format": "json", "properties.bootstrap.servers": "b:1"}
    for more, comment in (({}, LONG), ({"properties.ssl.key.pem": SECRET.popitem()[1]}, None)):
        with pytest.raises(InvalidRequest) as caught:
            KafkaDeclaration.of(parse_columns("id BIGINT"), (), options | more, comment)
        assert caught.value.code == "too-long"


@pytest.mark.slow
def test_a_table_that_is_too_large_already_may_shrink() -> None:
    definition = TableDefinition(parse_columns(MANY), comment=LONG)
    name = iter(map(str, range(100))).__next__
    assert len(evolve(definition, [DropColumn("c0")], name).definition.schema.columns) == bounds.COLUMNS_MAX
    assert evolve(definition, [SetComment("short")], name).definition.comment == "short"
    with pytest.raises(InvalidRequest) as caught:
        evolve(definition, [AddColumn("more", parse_columns("c INT").column("c").type)], name)
    assert caught.value.code == "too-many-columns"


_SIZES = st.integers(0, 1_000_000)
_EXTENTS = st.builds(Extent, _SIZES, _SIZES, _SIZES, _SIZES, _SIZES, _SIZES)


@given(_EXTENTS, _EXTENTS)
def test_only_what_is_too_large_and_grows_is_refused(after: Extent, before: Extent) -> None:
    most = Extent(
        bounds.COLUMNS_MAX,
        bounds.DEPTH_MAX,
        bounds.FIELD_NAME_MAX,
        bounds.COMMENT_MAX,
        bounds.OPTION_VALUE_MAX,
        bounds.OPTIONS_MAX,
    )
    names = Extent.__slots__
    wrong = [n for n in names if getattr(after, n) > getattr(most, n) and getattr(after, n) > getattr(before, n)]
    try:
        check_extent(after, before)
    except InvalidRequest:
        assert wrong
    else:
        assert not wrong


def test_an_extent_of_nothing_is_small() -> None:
    check_extent(Extent.of([], {}, None))
    check_extent(Extent.of([Column("a", parse_columns("a INT").column("a").type)], {}, ""))

"""System tables: their columns are those of SYSTEM_TABLES.md, and their rows describe the table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tablestore
from filestore.delta.actions import domain_action
from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.types import to_sql
from tablestore import Store, Table
from tablestore.system.names import SYSTEM_TABLES, split_name
from tablestore.system.scan import system_schema
from tests.tables import in_order
from tests.warehouses import replay, rows

PAGE = (Path(tablestore.__file__).parent / "SYSTEM_TABLES.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
DAYS = ("2026-01-01", "2026-01-02")


@pytest.fixture
def sales(store: Store) -> Table:
    """Versions: 1 two days of rows, 2 an upsert and an insert, 3 a delete, 4 the first day is overwritten, 5 merged."""
    table = store.create_table(
        "shop.sales",
        "id BIGINT, day DATE, name STRING",
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"bucket": "2", "partition.expiration-time": "7 d", "partition.expiration-check-interval": "999 d"},
        comment="what was sold",
    )
    # the first write looks for expired partitions, and there are none yet: from then on nothing expires by itself
    table.write(some(DAYS[0]), app=("first", 0))
    table.write(pa.concat_tables([some(DAYS[0], 1, 2, 3), some(DAYS[1], 1, 2)]))
    table.write(some(DAYS[0], 1, 9, name="b"))
    table.write(some(DAYS[1], 1).append_column("_kind", pa.array(["-D"])))
    table.write(some(DAYS[0], 7), overwrite="dynamic")
    return table


def some(day: str, *ids: int, name: str = "a") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([day] * len(ids), pa.string()),
            "name": pa.array([name] * len(ids), pa.string()),
        }
    )


def reported(table: Table, name: str, *version: int, **which: int) -> list[dict[str, Any]]:
    return table.system(name, *version, **which).to_arrow().to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def test_the_page_has_every_system_table() -> None:
    assert list(SECTIONS) == list(SYSTEM_TABLES)


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_the_page_has_every_column(sales: Table, name: str) -> None:
    columns = {field.name: to_sql(field.type).replace("`", "") for field in system_schema(name, sales.definition)}
    stated = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", SECTIONS[name], re.MULTILINE))
    own = set(sales.definition.schema.names) if "| … | |" in SECTIONS[name] else set()
    assert stated == {name: kind for name, kind in columns.items() if name not in own}
    which = {"from_version": 0} if name == "changes" else {}
    found = sales.system(name, **which)  # type: ignore[arg-type]
    assert found.to_arrow().schema == found.schema == system_schema(name, sales.definition)
    assert found.to_polars().columns == found.schema.names


def test_snapshots_are_the_history(sales: Table) -> None:
    found = reported(sales, "snapshots")
    assert [row["version"] for row in found] == [5, 4, 3, 2, 1, 0]
    for row, snapshot in zip(found, sales.snapshots(), strict=True):
        assert row["commit_time"] == snapshot.timestamp
        assert (row["operation"], row["commit_id"]) == (snapshot.operation, snapshot.commit_id)
        assert row["log_offsets"] == snapshot.log_offsets
        assert row["metrics"] == snapshot.metrics


def test_options_and_schemas_are_the_definition(sales: Table) -> None:
    assert {row["key"]: row["value"] for row in reported(sales, "options")} == sales.definition.options.as_dict()
    (schema,) = reported(sales, "schemas")
    assert schema["version"] == 0
    assert schema["update_time"] == sales.snapshots()[-1].timestamp
    assert (schema["primary_keys"], schema["partition_keys"]) == (["id", "day"], ["day"])
    assert schema["comment"] == "what was sold"
    assert schema["options"] == sales.definition.options.as_dict()
    assert schema["fields"][0] == {"name": "id", "type": "BIGINT", "nullable": False, "comment": None}


def test_a_later_definition_is_a_row_of_schemas(sales: Table) -> None:
    state = sales.filestore.state()
    info = {"commitInfo": {**sales.filestore.delta_log.read_entry(state.version).actions[0]["commitInfo"]}}  # type: ignore[union-attr]
    info["commitInfo"]["inCommitTimestamp"] += 1000
    metadata = sales.filestore.delta_log.read_entry(0).actions[2]["metaData"] | {"description": "changed"}  # type: ignore[union-attr]
    entry = Path(sales.location, "_delta_log", f"{state.version + 1:020d}.json")
    entry.write_text(json.dumps(info) + "\n" + json.dumps({"metaData": metadata}) + "\n")
    assert [(row["version"], row["comment"]) for row in reported(sales, "schemas")] == [
        (0, "what was sold"),
        (6, "changed"),
    ]


def test_files_buckets_and_partitions_add_up(sales: Table) -> None:
    for version in range(6):
        files, buckets, partitions = (reported(sales, name, version) for name in ("files", "buckets", "partitions"))
        live = len(rows(sales, version))
        for counted in (files, buckets, partitions):
            assert sum(row["live_record_count"] for row in counted) == live
        assert {row["file_path"] for row in files} == {file.path for file in sales.files(version)}
        assert sum(row["file_count"] for row in buckets) == sum(row["file_count"] for row in partitions) == len(files)
        for name in ("record_count", "file_size_in_bytes"):
            assert len({sum(row[name] for row in counted) for counted in (files, buckets, partitions)}) == 1
    assert [row["partition"] for row in partitions] == [{"day": day} for day in DAYS]
    assert [f"{row['expiration_time']:%Y-%m-%d}" for row in partitions] == ["2026-01-08", "2026-01-09"]
    assert {(row["levels"][0], row["sorted_runs"]) for row in buckets} == {(0, 1)}


def test_buckets_count_runs_and_levels(store: Store) -> None:
    table = store.create_table("shop.runs", "id BIGINT", primary_key=["id"])
    for version in range(3):
        table.write(pa.table({"id": [version, version + 10]}))
    (bucket,) = reported(table, "buckets")
    assert (bucket["partition"], bucket["sorted_runs"], bucket["file_count"]) == ({}, 3, 3)
    table.compact(full=True)
    (bucket,) = reported(table, "buckets")
    assert (bucket["sorted_runs"], bucket["file_count"]) == (1, 1)
    assert bucket["levels"][0] > 0
    plain = store.create_table("shop.plain", "id BIGINT")
    plain.write(pa.table({"id": [1]}))
    assert reported(plain, "buckets")[0]["sorted_runs"] is None


def test_pending_runs_are_counted_and_listed(store: Store) -> None:
    """Also in slots that have nothing else; what files hold is counted as ever."""
    table = store.create_table(
        "shop.later",
        "id BIGINT, day DATE, name STRING",
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"bucket": "2", "write-mode": "merge-on-read", "partition.expiration-time": "9999 d"},
    )
    table.write(some(DAYS[0], 1, 2, 3))
    (partition,) = reported(table, "partitions")
    assert [partition[name] for name in ("record_count", "file_count", "pending_record_count")] == [0, 0, 3]
    assert partition["expiration_time"] is not None
    table.compact(full=True)
    table.write(some(DAYS[0], 1, 4).append_column("_kind", pa.array(["-D", "+I"])))
    table.write(some(DAYS[1], 5))
    files, buckets, partitions = (reported(table, name) for name in ("files", "buckets", "partitions"))
    runs = list(table.filestore.state().pending)
    assert {row["file_path"] for row in files if row["pending"]} == {run.path for run in runs}
    assert {row["file_path"] for row in files if not row["pending"]} == {file.path for file in table.files()}
    assert {(row["level"], row["live_record_count"], row["stats"]) for row in files if row["pending"]} == {
        (None, None, None)
    }
    assert [row["partition"] for row in partitions] == [{"day": day} for day in DAYS]
    assert [row["live_record_count"] for row in partitions] == [3, 0]
    assert [row["pending_record_count"] for row in partitions] == [2, 1]
    assert partitions[1]["last_update_time"].timestamp() * 1000 == pytest.approx(max(run.modified_ms for run in runs))
    for counted in (buckets, partitions):
        assert sum(row["pending_run_count"] for row in counted) == len(runs)
        assert sum(row["pending_size_in_bytes"] for row in counted) == sum(run.size for run in runs)
        assert sum(row["live_record_count"] for row in counted) == 3
    (only_runs,) = [row for row in buckets if row["partition"] == {"day": DAYS[1]}]
    assert (only_runs["file_count"], only_runs["levels"], only_runs["sorted_runs"]) == (0, [], 0)


def test_tags_are_those_of_the_version(sales: Table) -> None:
    assert reported(sales, "tags") == []
    state = sales.filestore.state()
    tag = {"version": 2, "timestamp": 1_700_000_000_000, "created": 1_700_000_001_000}
    info = {"commitInfo": {**sales.filestore.delta_log.read_entry(state.version).actions[0]["commitInfo"]}}  # type: ignore[union-attr]
    info["commitInfo"]["inCommitTimestamp"] += 1000
    entry = Path(sales.location, "_delta_log", f"{state.version + 1:020d}.json")
    entry.write_text(json.dumps(info) + "\n" + json.dumps(domain_action("tablestore.tag.best", tag)) + "\n")
    (found,) = reported(sales, "tags")
    assert (found["tag_name"], found["version"]) == ("best", 2)
    assert (found["create_time"] - found["commit_time"]).total_seconds() == 1
    assert reported(sales, "tags", 5) == []


# ---------------------------------------------------------------------- rows


def test_the_audit_log_leads_to_the_table(sales: Table) -> None:
    found = reported(sales, "audit_log")
    assert replayed(found) == rows(sales)
    snapshots = {snapshot.version: snapshot for snapshot in sales.snapshots()}
    for row in found:
        assert row["_commit_timestamp"] == snapshots[row["_commit_version"]].timestamp
    kinds = [(row["_commit_version"], row["rowkind"], str(row["day"]), row["id"]) for row in found]
    assert sorted(kinds) == sorted(
        [
            *((2, "+I", DAYS[0], number) for number in (1, 2, 3)),
            *((2, "+I", DAYS[1], number) for number in (1, 2)),
            (3, "+U", DAYS[0], 1),
            (3, "+I", DAYS[0], 9),
            (4, "-D", DAYS[1], 1),
            *((5, "-D", DAYS[0], number) for number in (1, 2, 3, 9)),
            (5, "+I", DAYS[0], 7),
        ]
    )


def replayed(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table that changes lead to."""
    changes = [{name: row[name] for name in ("id", "day", "name")} | {"_kind": row["rowkind"]} for row in found]
    return replay(changes, ["id", "day"])


def test_a_range_of_the_audit_log(sales: Table) -> None:
    found = reported(sales, "audit_log", from_version=2, to_version=4)
    assert {row["_commit_version"] for row in found} == {3, 4}
    assert reported(sales, "audit_log", from_version=5) == []
    assert replayed(reported(sales, "audit_log", to_version=3)) == rows(sales, 3)


def test_changes_are_what_differs(sales: Table) -> None:
    def kinds(found: list[dict[str, Any]]) -> set[tuple[str, str, int, str]]:
        return {(row["rowkind"], str(row["day"]), row["id"], row["name"]) for row in found}

    assert kinds(reported(sales, "changes", from_version=2, to_version=4)) == {
        ("-U", DAYS[0], 1, "a"),
        ("+U", DAYS[0], 1, "b"),
        ("+I", DAYS[0], 9, "b"),
        ("-D", DAYS[1], 1, "a"),
    }
    assert kinds(reported(sales, "changes", from_version=4, to_version=2)) == {
        ("-U", DAYS[0], 1, "b"),
        ("+U", DAYS[0], 1, "a"),
        ("-D", DAYS[0], 9, "b"),
        ("+I", DAYS[1], 1, "a"),
    }
    before = sales.filestore.state().version
    sales.compact(full=True)
    assert reported(sales, "changes", from_version=before) == []
    assert in_order(_rows_of(reported(sales, "changes", from_version=0))) == rows(sales)


def _rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert {row["rowkind"] for row in found} == {"+I"}
    return [{k: v for k, v in row.items() if k != "rowkind"} for row in found]


def test_changes_need_no_log(store: Store) -> None:
    table = store.create_table("shop.quiet", "id BIGINT", primary_key=["id"], options={"log.system": "none"})
    table.write(pl.DataFrame({"id": [1, 2]}))
    assert [row["rowkind"] for row in reported(table, "changes", from_version=0)] == ["+I", "+I"]
    with pytest.raises(Unsupported) as caught:
        table.system("audit_log")
    assert caught.value.code == "no-log"


def test_a_column_called_rowkind_is_in_the_way(store: Store) -> None:
    table = store.create_table("shop.kinds", "id BIGINT, RowKind STRING", primary_key=["id"])
    for name in ("audit_log", "changes"):
        with pytest.raises(Unsupported) as caught:
            table.system(name, from_version=0)
        assert caught.value.code == "rowkind-column"
    assert len(reported(table, "snapshots")) == 1


@pytest.mark.parametrize(
    ("name", "version", "which", "error", "code"),
    [
        ("flies", None, {}, NotFound, "no-system-table"),
        ("files", 99, {}, NotFound, "no-such-version"),
        ("files", None, {"from_version": 1}, InvalidRequest, "bad-versions"),
        ("snapshots", 1, {}, InvalidRequest, "bad-versions"),
        ("snapshots", None, {"to_version": 1}, InvalidRequest, "bad-versions"),
        ("changes", None, {}, InvalidRequest, "bad-versions"),
        ("changes", 1, {"from_version": 1}, InvalidRequest, "bad-versions"),
        ("changes", None, {"from_version": 99}, NotFound, "no-such-version"),
        ("changes", None, {"from_version": 1, "to_version": 99}, NotFound, "no-such-version"),
        ("audit_log", 1, {}, InvalidRequest, "bad-versions"),
        ("audit_log", None, {"from_version": 3, "to_version": 2}, InvalidRequest, "bad-versions"),
        ("audit_log", None, {"from_version": -1}, NotFound, "no-such-version"),
        ("audit_log", None, {"to_version": 99}, NotFound, "no-such-version"),
    ],
)
def test_a_bad_request_says_what_is_wrong(
    sales: Table, name: str, version: int | None, which: dict[str, int], error: type[Exception], code: str
) -> None:
    with pytest.raises(error) as caught:
        sales.system(name, version, **which)
    assert caught.value.code == code  # type: ignore[attr-defined]


def test_names_are_split() -> None:
    assert split_name("shop.orders") == ("shop.orders", None)
    assert split_name("shop.orders$audit_log") == ("shop.orders", "audit_log")
    for name in ("shop.orders$", "shop.orders$x", "shop.orders$files$files"):
        with pytest.raises(NotFound):
            split_name(name)

"""What each command does, in this process."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from tablestore import Store, Table
from tests.cli.conftest import Run, objects
from tests.cli.programs import ROOT
from tests.integration.test_eventual_log import between
from tests.warehouses import rows


def put(table: Table, *ids: int, status: str = "OPEN") -> int:
    return table.write(pa.table({"id": ids, "status": [status] * len(ids)})).version


# ------------------------------------------------------------------------------------ databases and tables


def test_a_first_database_makes_the_warehouse(run: Run, tmp_path: Path) -> None:
    fresh = str(tmp_path / "fresh")
    assert run("create", "shop", catalog=fresh).exit_code == 0
    assert run("databases", catalog=fresh).stdout == "shop\n"


def test_a_table_is_created_as_the_options_say(run: Run, store: Store) -> None:
    columns = "region STRING, id BIGINT, amount DECIMAL(10,2)"
    result = run(
        *("create", "shop.sales", columns, "--key", "region,id", "--partition-by", "region"),
        *("--option", "bucket=3", "-o", "log.system=none", "--comment", "all of it"),
    )
    assert result.exit_code == 0
    definition = store.table("shop.sales").definition
    assert definition.primary_key == ("region", "id")
    assert definition.partition_by == ("region",)
    assert definition.options.as_dict() == {"bucket": "3", "log.system": "none"}
    assert definition.comment == "all of it"


@pytest.mark.parametrize("given", ["option", "environment"])
def test_a_table_is_created_with_defaults(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    defaults = "table-storage.log.retention=7 d; table-storage.bucket=4\n"
    asked = ("create", "shop.sales", "id BIGINT", "-o", "bucket=2")
    if given == "environment":
        monkeypatch.setenv("TABLESTORE_DEFAULTS", defaults)
    else:
        asked = (*asked, "--defaults", defaults)
    assert run(*asked).exit_code == 0
    assert store.table("shop.sales").definition.options.as_dict() == {"log.retention": "7 d", "bucket": "2"}


@pytest.mark.parametrize(
    ("defaults", "hint"),
    [
        ("bucket=4", "table-storage.bucket"),
        ("table-storage.buckets=4", "buckets"),
        ("table-storage.bucket", "NAME=VAL"),
    ],
)
def test_defaults_that_are_none(run: Run, defaults: str, hint: str) -> None:
    result = run("create", "shop.sales", "id BIGINT", "--defaults", defaults)
    assert result.exit_code
    assert hint in result.stderr


@pytest.mark.slow
def test_creating_again_is_an_error_unless_the_option_allows_it(run: Run, orders: Table) -> None:
    again = ("create", "shop.orders", "id BIGINT", "--key", "id")
    assert "error[table-exists]" in run(*again).stderr
    there = run(*again, "--if-not-exists")
    assert (there.exit_code, there.stderr) == (0, "shop.orders exists\n"), "it was not created now"
    assert run("create", "shop").exit_code == 1
    assert run("create", "shop", "--if-not-exists").exit_code == 0


@pytest.mark.slow
def test_lists(run: Run, store: Store, orders: Table) -> None:
    store.create_database("other")
    store.create_table("other.things", "id INT")
    assert run("databases").stdout.split() == ["other", "shop"]
    assert run("tables").stdout.split() == ["other.things", "shop.orders"]
    assert run("tables", "shop").stdout.split() == ["shop.orders"]
    assert objects(run("tables", "--format", "json")) == [{"name": "other.things"}, {"name": "shop.orders"}]


def test_drop_asks_first(run: Run, store: Store, orders: Table) -> None:
    put(orders, 1)
    asked = run("drop", "shop.orders", answers="n\n")
    assert asked.exit_code == 1
    assert "Drop shop.orders permanently, with 2 versions and 1 rows in 1 files with " in asked.stderr
    assert store.list_tables("shop") == ["orders"]
    assert run("drop", "shop.orders", answers="y\n").exit_code == 0
    assert store.list_tables("shop") == []
    gone = run("drop", "shop.orders", "--yes", "--if-exists")
    assert (gone.exit_code, gone.stderr) == (0, "shop.orders is gone\n"), "it was not dropped now"


def test_a_database_is_dropped_with_its_tables_only_on_request(run: Run, store: Store, orders: Table) -> None:
    assert "error[database-not-empty]" in run("drop", "shop", "--yes").stderr
    store.create_view("shop.open", "SELECT id FROM orders", columns='{"type":"struct","fields":[]}')
    asked = run("drop", "shop", "--cascade", answers="n\n").stderr
    assert "Drop the database shop permanently, with 1 tables and 1 views (orders, open) and 0 rows in 0 files" in asked
    assert "Drop the view shop.open?" in run("drop", "shop.open", answers="n\n").stderr
    assert "error[table-not-found]" in run("drop", "shop.gone", answers="n\n").stderr, "it asks nothing"
    assert run("drop", "shop", "--yes", "--cascade").exit_code == 0
    assert store.list_databases() == []


def test_describe(run: Run, orders: Table) -> None:
    put(orders, 1, 2)
    shown = run("describe", "shop.orders").stdout
    assert "primary key" in shown
    assert "`id` BIGINT NOT NULL" in shown
    assert re.search(r"^log +0: start 0, covered \d+, stable \d+, end \d+, held_back 0$", shown, re.MULTILINE)
    detail = json.loads(run("describe", "shop.orders", "--format", "json").stdout)
    assert (detail["rows"], detail["version"], detail["primary_key"]) == (2, 1, ["id"])
    assert {bucket: found["covered"] for bucket, found in detail["log"].items()} == detail["log_offsets"]
    assert {found["held_back"] for found in detail["log"].values()} == {0}


def test_snapshots_newest_first_with_their_offsets(run: Run, orders: Table) -> None:
    put(orders, 1, 2)
    last = orders.write(pa.table({"id": [1], "_kind": ["-D"]}))
    found = objects(run("snapshots", "shop.orders", "--format", "json"))
    assert [s["version"] for s in found] == [2, 1, 0]
    assert found[0]["log_offsets"] == {str(b): end for b, end in last.log_offsets.items()}
    lines = run("snapshots", "shop.orders", "--limit", 2).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "2", "1"]


# ---------------------------------------------------------------------------------------------------- rows


def test_scan_as_json_gives_all_rows(run: Run, orders: Table) -> None:
    put(orders, *range(50))
    lines = run("scan", "shop.orders", "--format", "json").stdout.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(50))


def test_scan_as_a_table_is_aligned_and_short(run: Run, orders: Table) -> None:
    put(orders, *range(50))
    result = run("scan", "shop.orders")
    lines = result.stdout.splitlines()
    assert len(lines) == 21
    assert len({line.index("OPEN") for line in lines[1:]}) == 1
    assert "the first 20 rows" in result.stderr
    assert len(run("scan", "shop.orders", "--limit", 50).stdout.splitlines()) == 51
    assert "the first" not in run("scan", "shop.orders", "--limit", 50).stderr


@pytest.mark.slow
def test_scan_filters_selects_and_travels(run: Run, orders: Table) -> None:
    put(orders, 1, 2, 3)
    put(orders, 2, status="PAID")
    paid = run("scan", "shop.orders", "--where", "status = 'PAID'", "--columns", "status,id", "-f", "json")
    assert paid.stdout == '{"status":"PAID","id":2}\n'
    then = run("scan", "shop.orders", "--version", 1, "-w", "id = 2", "-f", "json")
    assert json.loads(then.stdout) == {"id": 2, "status": "OPEN"}
    orders.create_tag("first", 1)
    (when,) = (snapshot.timestamp for snapshot in orders.snapshots() if snapshot.version == 1)
    for travel in (("--tag", "first"), ("--timestamp", when.isoformat())):
        assert run("scan", "shop.orders", *travel, "-w", "id = 2", "-f", "json").stdout == then.stdout
    both = run("scan", "shop.orders", "--tag", "first", "--version", 1)
    assert "bad-time-travel" in both.stderr


def test_scan_of_nothing_prints_nothing(run: Run, orders: Table) -> None:
    assert run("scan", "shop.orders").stdout == ""
    assert run("scan", "shop.orders", "-f", "json").stdout == ""


@pytest.mark.slow
def test_get_prints_the_rows_of_keys_in_their_order(run: Run, orders: Table) -> None:
    put(orders, *range(50))
    result = run("get", "shop.orders", 7, 99, 3, "--columns", "status,id", "-f", "json")
    assert result.stdout == '{"status":"OPEN","id":7}\n{"status":"OPEN","id":3}\n'
    assert "1 of 3 keys have no row" in result.stderr
    assert run("get", "shop.orders", 7).stdout.splitlines() == ["id  status", " 7  OPEN"]
    assert run("get", "shop.orders", 7, "--version", 0).stdout == ""
    assert "error[bad-value]" in run("get", "shop.orders", "seven").stderr


def test_a_key_of_several_columns_is_a_line_of_csv(run: Run, store: Store) -> None:
    table = store.create_table("shop.sales", "region STRING, id INT", primary_key=["region", "id"])
    table.write(pl.DataFrame({"region": ["eu", "a,b"], "id": [7, 7]}))
    assert run("get", "shop.sales", "eu,7", '"a,b",7', "-f", "json").stdout.splitlines() == [
        '{"region":"eu","id":7}',
        '{"region":"a,b","id":7}',
    ]
    assert "error[bad-keys]" in run("get", "shop.sales", "eu").stderr


def test_every_type_can_be_printed(run: Run, store: Store) -> None:
    columns = (
        "a BOOLEAN, b BIGINT, c DOUBLE, d DECIMAL(10,2), e STRING, f BINARY, g DATE, h TIMESTAMP, "
        "i ARRAY<INT>, j MAP<STRING, INT>, k STRUCT<x: INT, y: STRING>"
    )
    table = store.create_table("shop.all", columns)
    values = {"b": 1, "e": "two\nlines", "f": b"\x00", "i": [1], "j": [("k", 1)], "k": {"x": 1, "y": None}}
    table.write(pa.Table.from_pylist([values, {}], schema=table.schema))
    shown = run("scan", "shop.all").stdout
    assert len(shown.splitlines()) == 3
    assert "two\\nlines" in shown
    assert '{"x":1,"y":null}' in shown
    assert len(run("scan", "shop.all", "-f", "json").stdout.splitlines()) == 2


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson", ".json"])
def test_write_upserts_a_file(run: Run, orders: Table, tmp_path: Path, suffix: str) -> None:
    put(orders, 1, 2)
    file = tmp_path / f"rows{suffix}"
    frame = pl.DataFrame({"id": [2, 3], "status": ["PAID", None], "_kind": ["+U", "+I"]})
    writers = {".csv": frame.write_csv, ".ndjson": frame.write_ndjson, ".json": frame.write_json}
    writers.get(suffix, frame.write_parquet)(file)
    result = run("write", "shop.orders", file)
    assert result.exit_code == 0
    assert "version 2" in result.stderr
    assert rows(orders) == [{"id": 1, "status": "OPEN"}, {"id": 2, "status": "PAID"}, {"id": 3, "status": None}]


CSV_FILES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "semicolon.csv": (b"id;status\n1;a,b\n2;\n", ()),
    "tab.tsv": (b"id\tstatus\n1\ta,b\n2\t\n", ()),
    "bar.csv": (b"id|status\r\n1|a,b\r\n2|\r\n", ()),
    "upper.csv": (b'ID,Status\n1,"a,b"\n2,\n', ()),
    "blank.csv": (b'\nid,status\n\n1,"a,b"\n\n2,\n\n\n', ()),
    "wide.csv": ("id;status\n1;a,b\n2;\n".encode("utf-16"), ()),
    "mark.csv": (b'\xef\xbb\xbfid,status\n1,"a,b"\n2,\n', ()),
    "mac.csv": (b'id,status\r1,"a,b"\r2,\r', ()),
    "marked.csv": (b"\xef\xbb\xbfid;status\n1;a,b\n2;\n", ("--encoding", "utf-8")),
    "packed.csv.gz": (gzip.compress(b'id,status\n1,"a,b"\n2,\n'), ()),
    "packed.tsv.zst": (pa.compress(b"id\tstatus\n1\ta,b\n2\t\n", codec="zstd", asbytes=True), ()),
    "packed.ndjson.gz": (gzip.compress(b'{"id": 1, "status": "a,b"}\n{"id": 2}\n'), ()),
    "null.csv": (b'id,status\n1,"a,b"\n2,NA\n', ("--null", "NA")),
    "other.csv": (b"id^status\n1^a,b\n2^\n", ("--delimiter", "^")),
    "escaped.csv": (b"id\tstatus\n1\ta,b\n2\t\n", ("--delimiter", "\\t")),
}


@pytest.mark.parametrize("name", CSV_FILES)
def test_write_takes_the_csv_that_people_have(run: Run, orders: Table, tmp_path: Path, name: str) -> None:
    content, options = CSV_FILES[name]
    (tmp_path / name).write_bytes(content)
    result = run("write", "shop.orders", tmp_path / name, *options)
    assert result.exit_code == 0, result.output
    assert rows(orders) == [{"id": 1, "status": "a,b"}, {"id": 2, "status": None}]


def test_csv_in_another_encoding_is_named_and_taken(run: Run, orders: Table, tmp_path: Path) -> None:
    file = tmp_path / "latin.csv"
    file.write_bytes("id,status\n1,x\n2,café\n".encode("latin-1"))
    refused = run("write", "shop.orders", file)
    printed = " ".join(refused.output.replace("│", " ").split())
    assert "line 3 is not utf-8 (byte 0xe9): name the file's encoding, such as latin-1 or cp1252" in printed
    assert run("write", "shop.orders", file, "--encoding", "latin-1").exit_code == 0
    assert rows(orders) == [{"id": 1, "status": "x"}, {"id": 2, "status": "café"}]
    for option, value, reason in (
        ("--encoding", "klingon", "there is no encoding 'klingon'"),
        ("--delimiter", "::", "'::' is not one character that may be between fields"),
        ("--delimiter", '"', "is not one character that may be between fields"),
    ):
        bad = run("write", "shop.orders", file, option, value)
        assert bad.exit_code == 2 and reason in " ".join(bad.output.replace("│", " ").split()), bad.output
    assert run("write", "shop.orders", "-", "--null", "NA", stdin="[]").exit_code == 2


def test_write_takes_json_from_standard_input_and_overwrites(run: Run, orders: Table) -> None:
    put(orders, 1, 2)
    assert run("write", "shop.orders", "-", "--overwrite", stdin='{"id": 7, "status": "NEW"}\n').exit_code == 0
    assert rows(orders) == [{"id": 7, "status": "NEW"}]


def test_what_scan_prints_of_no_rows_is_no_row_to_write_and_does_not_empty_a_table(run: Run, orders: Table) -> None:
    orders.write(pa.table({"id": [1], "status": ["OPEN"]}))
    printed = run("scan", "shop.orders", "--where", "id > 1", "--format", "json").stdout
    written = run("write", "shop.orders", "-", stdin=printed)
    assert (written.exit_code, written.stderr) == (0, "there are no rows: nothing was written\n")
    assert run("write", "shop.orders", "-", "--overwrite", stdin=printed).exit_code == 2
    assert orders.version == 1 and len(rows(orders)) == 1
    assert run("write", "shop.orders", "-", "--overwrite", stdin="[]").exit_code == 0
    assert rows(orders) == []


def test_what_scan_prints_write_takes(run: Run, store: Store, orders: Table) -> None:
    put(orders, 1, 2)
    copy = store.create_table("shop.copy", "id BIGINT, status STRING", primary_key=["id"])
    assert run("write", "shop.copy", "-", stdin=run("scan", "shop.orders", "-f", "json").stdout).exit_code == 0
    assert rows(copy) == rows(orders)


def test_csv_values_take_the_tables_types(run: Run, store: Store, tmp_path: Path) -> None:
    store.create_table("shop.typed", "id INT, code STRING, day DATE, at TIMESTAMP, price DECIMAL(10,2), ok BOOLEAN")
    file = tmp_path / "rows.csv"
    file.write_text("id,code,day,at,price,ok\n1,007,2026-01-31,2026-01-31T12:00:00Z,9.90,true\n2,,,,,\n")
    assert run("write", "shop.typed", file).exit_code == 0
    first, second = (json.loads(line) for line in run("scan", "shop.typed", "-f", "json").stdout.splitlines())
    assert (first["code"], first["day"], first["price"], first["ok"]) == ("007", "2026-01-31", "9.90", True)
    assert second == {"id": 2, "code": None, "day": None, "at": None, "price": None, "ok": None}


# ---------------------------------------------------------------------------------------------------- care


def test_the_doctor_is_content(run: Run, orders: Table) -> None:
    put(orders, 1, 2)
    result = run("doctor", "shop.orders")
    assert result.exit_code == 0
    assert "shop.orders at version 1: healthy" in result.stdout
    assert json.loads(run("doctor", "shop.orders", "--format", "json").stdout)["healthy"] is True


def test_compact(run: Run, orders: Table) -> None:
    put(orders, 1)
    assert "needs no compaction" in run("compact", "shop.orders").stderr
    for number in range(3):
        put(orders, *range(number * 100, number * 100 + 100))
    before = rows(orders)
    result = run("compact", "shop.orders", "--full")
    assert result.exit_code == 0
    assert "2 now" in result.stderr
    assert rows(orders) == before


def test_compact_of_some_partitions(run: Run, store: Store) -> None:
    table = store.create_table("shop.days", "day DATE, n INT", partition_by=["day"])
    for number in range(2):
        table.write([{"day": day, "n": number} for day in (date(2026, 1, 1), date(2026, 1, 2))])
    result = run("compact", "shop.days", "--full", "--partition", "day=2026-01-02")
    assert "4 files before, 3 now" in result.stderr
    assert "needs no compaction" in run("compact", "shop.days", "--full", "--partition", "day=2026-01-02").stderr
    refused = run("compact", "shop.days", "--partition", "n=1")
    assert refused.exit_code == 1
    assert "'n' is not a partition column" in refused.stderr


# --------------------------------------------------------------------------------------------------- errors


def test_an_error_is_one_line_and_exit_code_1(run: Run) -> None:
    result = run("describe", "shop.nothing")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[table-not-found]: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("scan", "orders"), "bad-name"),
        (("create", "shop.t", "id BIGNT"), "bad-column-list"),
        (("create", "shop.t", "id BIGINT", "-o", "buckt=2"), "unknown-option"),
        (("create", "shop.t"), "no-columns"),
        (("create", "other", "id BIGINT"), "bad-name"),
        (("scan", "shop.orders", "--columns", "id,nme"), "unknown-column"),
        (("follow", "shop.orders", "--columns", "nme"), "unknown-column"),
        (("tables", "-c", "/nowhere/at/all"), "no-warehouse"),
    ],
)
def test_wrong_requests_name_their_code(run: Run, orders: Table, arguments: tuple[str, ...], code: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.partition(":")[0]) == (1, f"error[{code}]")


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan",),
        ("scan", "shop.orders", "--format", "xml"),
        ("scan", "shop.orders", "--limit", "-1"),
        ("follow", "shop.orders", "--scan", "from-timestamp"),
        ("follow", "shop.orders", "--scan", "from-timestamp", "--timestamp", "yesterday"),
        ("write", "shop.orders", "/no/such/file.csv"),
        ("write", "shop.orders", __file__),
        ("create", "shop.t", "id BIGINT", "-o", "bucket"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, orders: Table, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_looking_at_a_warehouse_that_is_not_there_makes_none(run: Run, tmp_path: Path) -> None:
    assert run("tables", catalog=str(tmp_path / "typo")).exit_code == 1
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------ changes of a table


def test_columns_are_changed_in_one_commit(run: Run, orders: Table) -> None:
    put(orders, 1, 2)
    result = run(
        *("alter", "shop.orders", "ADD COLUMN n INT FIRST", "RENAME COLUMN status TO state"),
        *("ALTER COLUMN state COMMENT 'of the order'", "SET target-file-size = 1 mb", "ALTER COLUMN n TYPE BIGINT"),
    )
    assert result.exit_code == 0, result.output
    assert "version 2 (2 rows rewritten)" in result.stderr
    assert orders.definition.schema.names == ("n", "id", "state")
    assert orders.definition.schema.column("state").comment == "of the order"
    assert orders.definition.options["target-file-size"] == 1 << 20
    assert [row["state"] for row in rows(orders)] == ["OPEN", "OPEN"]


def test_who_would_be_shut_out_is_asked_about(run: Run, orders: Table) -> None:
    put(orders, 1)
    assert run("alter", "shop.orders", "SET schema.evolution-mode = metadata").exit_code == 0
    asked = run("alter", "shop.orders", "DROP COLUMN status", answers="n\n")
    assert asked.exit_code == 1
    assert "polars refuses it" in asked.stderr
    assert orders.filestore.state().version == 2
    assert run("alter", "shop.orders", "DROP COLUMN status", "--yes").exit_code == 0
    assert rows(orders) == [{"id": 1}]


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("DROP COLUMN id", "error[column-in-use]"),
        ("DROP zz", "error[bad-change]"),
        ("SET bucket = 9", "error[fixed-option]"),
    ],
)
def test_a_change_that_cannot_be_made(run: Run, orders: Table, change: str, hint: str) -> None:
    result = run("alter", "shop.orders", "ADD COLUMN n INT", change)
    assert result.exit_code == 1
    assert hint in result.stderr
    assert orders.filestore.state().version == 0


# ------------------------------------------------------------------------------------ beyond the newest version


@pytest.mark.slow
def test_a_fresh_scan_shows_what_is_not_committed_yet(run: Run, store: Store) -> None:
    options = {"log.consistency": "eventual"}
    table = store.create_table("shop.live", "id BIGINT, status STRING", primary_key=["id"], options=options)
    put(table, 1, 2)
    shown: list[str] = []

    def look() -> None:
        for asked in (("scan", "shop.live"), ("scan", "shop.live", "--fresh"), ("scan", "shop.live", "--fresh", "-n1")):
            shown.append(run(*asked, "--format", "json").stdout)

    put(between(table, look), 2, 3, status="PAID")
    found = [sorted(json.loads(line)["id"] for line in text.splitlines()) for text in shown]
    assert found[:2] == [[1, 2], [1, 2, 3]]
    assert len(found[2]) == 1
    assert shown[0].count("PAID") == 0
    assert shown[1].count("PAID") == 2


def test_a_fresh_scan_is_one_of_now(run: Run, orders: Table) -> None:
    put(orders, 1)
    assert "error[bad-time-travel]" in run("scan", "shop.orders", "--fresh", "--version", 1).stderr
    assert run("scan", "shop.orders", "--fresh", "--format", "json").stdout.count("OPEN") == 1


# --------------------------------------------------------------------------- typical mistakes that users made


MISTAKES = {
    ("create", "shop"): (1, "use it, or pass --if-not-exists"),
    ("create", "shop.orders", "id BIGINT"): (1, "use it, or pass --if-not-exists"),
    ("create", "shop.x", "id BIGINT, name VARCHR"): (1, "at 'VARCHR'"),
    ("create", "shop.x", "id BIGINT, name VARCHAR2(20)"): (1, "column 'name' has type VARCHAR2(20)"),
    ("drop", "shop", "-y"): (1, "drop them first, or pass --cascade"),
    ("drop", "shop.orders"): (1, "no terminal at which to ask, so nothing was changed: --yes continues"),
    ("rollback", "shop.orders", "--version", "0"): (1, "--yes continues without asking"),
    ("scan", "shop.orders", "--version", "abc"): (2, "'abc' is not a whole number"),
    ("scan", "shop.orders", "--limit", "-1"): (2, "-1 is too small: the smallest value is 0"),
    ("scan", "shop.orders", "--format", "xml"): (2, "'xml' is not one of 'table', 'json'."),
    ("scan", "shop.orders", "--timestamp", "2099-01-01"): (1, "2099-01-01T00:00:00+00:00 is in the future"),
    ("follow", "shop.orders", "--timestamp", "2099-01-01", "--until", "1"): (1, "is in the future"),
    ("orphans", "shop.orders", "--older-than-hours", "x"): (2, "'x' is not a number"),
    ("serve", "--port", "99999"): (2, "99999 is too large: the largest value is 65535"),
    ("get", "shop.orders", "abc"): (1, "column 'id' is BIGINT, and 'abc' in row 0"),
    ("write", "shop.orders", "none.csv"): (2, "none.csv cannot be read: No such file or directory"),
    ("write", "shop.orders", "-", "--overwrite"): (2, "standard input cannot be read: it is empty"),
    ("write", "shop.orders", "x.xlsx"): (2, "the name ends with none of .parquet, .csv"),
}
FOREIGN_WORDS = re.compile(
    r"=true|=True|Input should be|Value error|Aborted|large_string|int64|truncate_ragged|os error"
)


@pytest.mark.slow
def test_a_mistake_is_answered_in_the_words_of_the_command_line(run: Run, orders: Table, tmp_path: Path) -> None:
    (tmp_path / "x.xlsx").touch()
    for command, (code, hint) in MISTAKES.items():
        files = [str(tmp_path / part) if part.endswith((".csv", ".xlsx")) else part for part in command]
        result = run(*files, stdin="")
        words = " ".join(result.output.replace("│", " ").split())
        assert result.exit_code == code, (command, words)
        assert hint in words.replace(f"{tmp_path}/", ""), (command, words)
        assert not FOREIGN_WORDS.search(words), (command, words)
    assert rows(orders) == []


FILES = {
    "bad.csv": ("id,status\n1,A\nx2,B\n", 'bad.csv cannot be read: row 2: id: "x2" is no BIGINT'),
    "ragged.csv": ("id,status\n1,A\n2,B,C\n", "line 3 has 3 fields, and the header names 2 columns"),
    "empty.csv": ("", "it is empty: the first line has the names of the columns"),
    "twice.csv": ("id,ID\n1,2\n", "its first line names the column 'id' more than once"),
    "other.csv": ("a;b\n1;2\n", "its first line names one column, 'a;b': is the delimiter ';'?"),
    "comma.tsv": ("id,status\n1,A\n", "its first line names one column, 'id,status': is the delimiter ','?"),
    "header.csv": ("idd,nmae\n", "there is no column 'idd' (did you mean 'id'?)"),
    "field.csv": ("id," + "x" * 140_000 + "\n", "line 1: field larger than field limit (131072)"),
    "orders.parquet.gz": ("x", "the name ends with none of .parquet, .csv, .tsv"),
    "cut.json": ('{"id": 1}\n{"id": 2,\n', "line 2: not JSON: Expecting property name"),
    "number.json": ('{"id": 1}\n7\n', "line 2: not a JSON object but 7"),
    "values.json": ("[1, 2]", "the array: not a JSON object but 1"),
    "no.parquet": ("PAR1", "no.parquet cannot be read: "),
    "float.json": ('{"id": 1}\n{"id": 1.5}\n', "line 2: id: 1.5 is no BIGINT"),
    "short.csv": ("id,status\n1\n", "line 2 has 1 fields, and the header names 2 columns"),
    "typo.json": (
        '{"id": 1, "statsu": "A"}',
        "line 1: there is no column 'statsu' (did you mean 'status'?); the columns are id, status, _kind",
    ),
}


@pytest.mark.slow
def test_an_error_of_a_bad_file_names_its_line_or_row(run: Run, orders: Table, tmp_path: Path) -> None:
    for name, (text, hint) in FILES.items():
        (tmp_path / name).write_text(text)
        result = run("write", "shop.orders", tmp_path / name)
        words = " ".join(result.output.replace("│", " ").split())
        assert result.exit_code, name
        assert hint in words, (name, words)
    assert rows(orders) == []
    assert run("write", "shop.orders", "-", stdin="[]").exit_code == 0


def test_a_scan_of_a_time_says_which_version_that_was(run: Run, orders: Table) -> None:
    put(orders, 1)
    when = orders.snapshots(1)[0].timestamp
    put(orders, 2)
    result = run("scan", "shop.orders", "--timestamp", when.isoformat(), "-f", "json")
    assert json.loads(result.stdout)["id"] == 1
    assert "version 1 was the newest at that time" in result.stderr


@pytest.mark.slow
def test_every_command_that_prints_has_the_same_switch_for_json(run: Run, orders: Table) -> None:
    for command in (
        ("databases",),
        ("tables",),
        ("describe", "shop.orders"),
        ("scan", "shop.orders"),
        ("snapshots", "shop.orders"),
    ):
        assert run(*command, "--format", "json").exit_code == 0
        assert run(*command, "--json").exit_code == 2


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_a_command_quietly(orders: Table, store: Store) -> None:
    put(orders, *range(50_000), status="x" * 50)
    scan = [sys.executable, "-m", "tablestore.cli", "scan", "shop.orders", "-f", "json", "-c", store.target]
    with subprocess.Popen(
        scan, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline().startswith(b"{")
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(300) == 128 + signal.SIGPIPE

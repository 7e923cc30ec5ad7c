"""The commands for versions: tags, expiry, orphans, rollback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tablestore import Store, Table
from tests.cli.conftest import Run, objects
from tests.tables import paths
from tests.warehouses import rows, to_arrow


@pytest.fixture
def busy(store: Store) -> Table:
    options = {"snapshot.num-retained.min": "2", "snapshot.time-retained": "0 ms", "checkpoint.interval": "2"}
    table = store.create_table("shop.busy", "id BIGINT, v INT", primary_key=["id"], options=options)
    for number in range(6):
        table.write(to_arrow(table, [{"id": n, "v": number} for n in (0, number)]))
    table.compact(full=True)
    return table


@pytest.mark.slow
def test_a_tag_is_made_listed_read_and_deleted(busy: Table, run: Run) -> None:
    assert run("tag", "shop.busy", "eod", "--version", 3).exit_code == 0
    listed = json.loads(run("tags", "shop.busy", "--format", "json").stdout)
    assert (listed["tag"], listed["version"], listed["automatic"]) == ("eod", 3, False)
    assert "eod" in run("tags", "shop.busy").stdout
    again = run("tag", "shop.busy", "eod", "--version", 4)
    assert (again.exit_code, "error[tag-exists]" in again.stderr) == (1, True)
    assert run("tag", "shop.busy", "eod", "--delete", "--version", 4).exit_code == 2
    assert run("tag", "shop.busy", "eod", "--delete").exit_code == 0
    assert run("tags", "shop.busy", "--format", "json").stdout == ""


@pytest.mark.slow
def test_a_rollback_asks_first(busy: Table, run: Run) -> None:
    before = rows(busy, 2)
    assert run("rollback", "shop.busy").exit_code == 2
    assert run("rollback", "shop.busy", "--version", 2, "--tag", "x").exit_code == 2
    asked = run("rollback", "shop.busy", "--version", 2, answers="n\n")
    assert asked.exit_code == 1
    assert "Roll shop.busy back from version 7 (6 rows in 1 files with " in asked.stderr
    assert "to version 2 (2 rows in 1 files with " in asked.stderr
    assert rows(busy) != before
    done = run("rollback", "shop.busy", "--version", 2, answers="y\n")
    assert done.exit_code == 0
    assert rows(busy) == before


@pytest.mark.slow
def test_a_new_log_begins_once(busy: Table, run: Run) -> None:
    assert "shop.busy has its log" in run("new-log", "shop.busy").stderr
    shutil.rmtree(Path(busy.location) / "_log")
    doctor = run("doctor", "shop.busy", "--format", "json")
    assert doctor.exit_code == 1 and "`tablestore new-log shop.busy`" in doctor.stdout
    begun = run("new-log", "shop.busy")
    assert begun.exit_code == 0 and begun.stderr.startswith("version 8: a new log of shop.busy begins")
    assert "shop.busy has its log" in run("new-log", "shop.busy").stderr
    assert run("doctor", "shop.busy").exit_code == 0
    other = run("new-log", "shop.busy", "--option", "log.kafka.bootstrap.servers=localhost:9092")
    assert "error[log-not-lost]" in other.stderr
    assert "error[not-of-the-log]" in run("new-log", "shop.busy", "-o", "bucket=3").stderr


@pytest.mark.slow
def test_an_expiry_can_be_looked_at_first(busy: Table, run: Run) -> None:
    planned = json.loads(run("expire", "shop.busy", "--dry-run", "--format", "json").stdout)
    assert planned["versions"] == 6
    states = [busy.filestore.state(version) for version in range(8)]
    kept = {path for state in states[planned["first"] :] for path in paths(state)}
    rows = {file.path: file.rows for state in states for file in state.files if file.path not in kept}
    removed = sum(rows.values())
    assert removed > 0
    assert busy.filestore.state().version == 7
    for answers in ("", "n\n"):
        asked = run("expire", "shop.busy", answers=answers)
        assert asked.exit_code == 1
        assert "Let 6 versions of shop.busy expire, all before version 6, and remove " in asked.stderr
        assert f" files with {removed:,} rows, " in asked.stderr
        assert f" and {planned['bytes']:,} bytes? They can never be read" in asked.stderr
    assert busy.filestore.state().version == 7
    done = run("expire", "shop.busy", "--yes")
    assert "6 versions expired" in done.stderr
    late = run("scan", "shop.busy", "--version", 2)
    assert (late.exit_code, "error[snapshot-expired]" in late.stderr) == (1, True)
    assert run("maintain", "shop.busy").exit_code == 0


@pytest.mark.slow
def test_consumers_are_listed_and_forgotten(busy: Table, run: Run) -> None:
    busy.consumer("report").register(3)
    listed = json.loads(run("consumers", "shop.busy", "--format", "json").stdout)
    assert (listed["consumer"], listed["version"]) == ("report", 3)
    assert "report" in run("consumers", "shop.busy").stdout
    assert run("consumers", "shop.busy", "--forget", "report").exit_code == 0
    missing = run("consumers", "shop.busy", "--forget", "report")
    assert (missing.exit_code, "error[no-such-consumer]" in missing.stderr) == (1, True)


@pytest.mark.slow
def test_orphans_are_removed_only_if_that_is_asked_for(busy: Table, run: Run) -> None:
    busy.filestore.storage.write_new(f"{busy.location}/bucket-00000/x.parquet", b"PAR1")
    assert run("orphans", "shop.busy").stdout == "", "it is young"
    listed = run("orphans", "shop.busy", "--older-than-hours", 0)
    assert listed.stdout.splitlines() == ["bucket-00000/x.parquet"]
    young = ("orphans", "shop.busy", "--older-than-hours", 0, "--remove")
    refused = run(*young, "--yes")
    assert (refused.exit_code, "error[young-orphans]" in refused.stderr) == (1, True)
    assert "pass --even-young" in refused.stderr
    asked = run(*young, "--even-young")
    assert asked.exit_code == 1
    assert "Remove these 1 files (data file: 1) with 4 bytes? There is no terminal" in asked.stderr
    assert run(*young, "--even-young", answers="n\n").exit_code == 1
    again = objects(run(*young, "--even-young", "--yes", "--format", "json"))
    assert [(o["path"], o["kind"], o["bytes"]) for o in again] == [("bucket-00000/x.parquet", "data file", 4)]
    assert run("orphans", "shop.busy", "--older-than-hours", 0).stdout == ""

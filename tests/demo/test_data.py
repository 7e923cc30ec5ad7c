"""The demo's data is what the demo says it is."""

from __future__ import annotations

import polars as pl
import pytest

from filestore.model.sql import parse_columns
from tablestore.demo.data import TABLES, read_frames


@pytest.fixture(scope="module")
def frames() -> dict[str, pl.DataFrame]:
    return read_frames()


def test_it_is_the_whole_year(frames: dict[str, pl.DataFrame]) -> None:
    heights = {name: frame.height for name, frame in frames.items()}
    assert heights == {"flights": 336_776, "planes": 3_322, "airports": 1_458, "airlines": 16, "weather": 26_115}
    assert frames["flights"]["dep_time"].null_count() == 8_255


@pytest.mark.parametrize("name", TABLES)
def test_keys_are_unique_and_without_gaps(frames: dict[str, pl.DataFrame], name: str) -> None:
    keys = frames[name].select(TABLES[name].key)
    assert keys.n_unique() == keys.height
    assert not any(keys.null_count().row(0))


@pytest.mark.parametrize(
    ("name", "columns", "shared"),
    [
        ("flights", ["year", "month", "day", "carrier", "flight"], 24),
        ("weather", ["origin", "year", "month", "day", "hour"], 3),
    ],
)
def test_the_keys_that_come_to_mind_first_are_not_unique(
    frames: dict[str, pl.DataFrame], name: str, columns: list[str], shared: int
) -> None:
    keys = frames[name].select(columns)
    assert keys.height - keys.n_unique() == shared


@pytest.mark.parametrize("name", TABLES)
def test_frames_have_the_tables_columns(frames: dict[str, pl.DataFrame], name: str) -> None:
    wanted = parse_columns(TABLES[name].columns, TABLES[name].key).to_arrow()
    assert frames[name].columns == wanted.names
    frames[name].to_arrow().cast(wanted)

"""``tablestore sql`` on tables in S3: a warehouse that the command opens itself, and one of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tablestore
from catalog_service.server import serving
from tests.cli.conftest import Run
from tests.cli.programs import Program
from tests.servers.s3 import S3Endpoint

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "b"}]
GROUPED = "SELECT v, count(*) AS n FROM shop.t GROUP BY v ORDER BY v"


@pytest.fixture(params=["warehouse", "service"])
def catalog(
    request: pytest.FixtureRequest, moto: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A catalog with a table in S3, which processes with this environment reach."""
    moto.set_environment(monkeypatch)
    warehouse, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path}/catalog.db"
    with tablestore.connect(warehouse, database=database) as store:
        store.create_database("shop")
        store.create_table("shop.t", "id BIGINT, v STRING", primary_key=["id"]).write(ROWS)  # type: ignore[union-attr]
    if request.param == "service":
        with serving(warehouse, database=database) as url:
            yield url
    else:
        monkeypatch.setenv("TABLESTORE_DATABASE", database)
        yield warehouse


def test_a_plain_select_runs_in_polars(run: Run, catalog: str) -> None:
    done = run("sql", "-c", catalog, f"{GROUPED}; SELECT id FROM lake.shop.t WHERE v = 'a'")
    assert done.exit_code == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [["v", "n"], ["a", "1"], ["b", "2"], ["id"], ["1"]]
    assert done.stderr.splitlines() == ["polars: 2 rows", "polars: 1 row"]


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.spark
def test_other_statements_run_in_spark(start: Callable[..., Program], run: Run, catalog: str) -> None:
    in_s3 = ["--s3"] if catalog.startswith("http") else []  # the service does not say where its tables are
    script = (
        "MERGE INTO shop.t t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = upper(t.v); "
        "CREATE TABLE shop.made AS SELECT id, v FROM shop.t WHERE v <> lower(v); "
        "SELECT id, v FROM shop.made"
    )
    program = start("sql", "-c", catalog, *in_s3, "--engine", "spark", script)
    assert program.wait() == 0, program.err.lines
    assert [line.split() for line in program.out.lines] == [["id", "v"], ["3", "B"]]
    done = run("sql", "-c", catalog, f"{GROUPED}; SELECT * FROM shop.made")
    assert [line.split() for line in done.stdout.splitlines()][1:] == [
        ["B", "1"], ["a", "1"], ["b", "1"], ["id", "v"], ["3", "B"],
    ]  # fmt: skip

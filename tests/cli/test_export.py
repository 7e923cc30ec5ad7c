"""``scan --output``: files with exactly the rows, whole or not there at all, in bounded memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.ambient import system_ambient
from filestore.errors import Unavailable, Unsupported
from tablestore import Store, Table
from tablestore.cli.export import export
from tablestore.incoming.files.row_file import RowFile
from tablestore.incoming.fitting import fit
from tablestore.incoming.given import arrow_rows
from tests.cli.conftest import Run
from tests.cli.sql_cases import COLUMNS, ROWS
from tests.cli.test_round_trip import columns
from tests.log.connector.formats.rows import plain
from tests.log.schemas import same

ENDINGS = (".parquet", ".arrow", ".csv", ".tsv", ".json", ".ndjson", ".csv.gz", ".json.zst", ".tsv.bz2")


def read(file: Path, schema: pa.Schema) -> pa.Table:
    """The rows of a file, as ``write`` reads it."""
    if file.suffix == ".arrow":
        found = pa.ipc.open_file(file).read_all()
    else:
        written = RowFile.of(file)
        found = schema.empty_table() if written.is_blank() else arrow_rows(written.rows(schema), schema)
    return pa.Table.from_arrays([fit(found[field.name], field) for field in schema], schema=schema)


@settings(max_examples=max(20, settings.default.max_examples))
@given(columns(), st.sampled_from(ENDINGS), st.integers(1, 7))
def test_a_file_has_exactly_the_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: pa.Table, ending: str, size: int
) -> None:
    file = tmp_path_factory.mktemp("export") / f"rows{ending}"
    try:
        assert export(rows.to_batches(max_chunksize=size), rows.schema, file, system_ambient()) == rows.num_rows
    except Unsupported as error:
        assert error.code == "export-type"
        assert ending.startswith((".csv", ".tsv"))
        assert any(pa.types.is_nested(field.type) for field in rows.schema)
        assert list(file.parent.iterdir()) == []
        return
    found = read(file, rows.schema)
    assert same(found, rows) or plain(found) == plain(rows)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows_are_a_file_with_columns(tmp_path: Path, ending: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("a,b", pa.string())])
    file = tmp_path / f"rows{ending}"
    assert export([], schema, file, system_ambient()) == 0
    assert read(file, schema).num_rows == 0


@pytest.fixture
def orders_of_all_types(store: Store) -> Table:
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options={"log.system": "none"})
    table.write(ROWS)
    return table


def test_scan_exports_what_it_reads(run: Run, orders_of_all_types: Table, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    done = run("scan", "shop.t", "--output", file)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{file}: 6 rows\n")
    assert pl.read_parquet(file).height == 6
    csv = tmp_path / "t.csv"
    done = run("scan", "shop.t", "-o", csv)
    assert (done.exit_code, csv.exists()) == (1, False)
    assert done.stderr.startswith("error[export-type]: column 'tags' has lists, structs or maps")
    done = run("scan", "shop.t", "-o", csv, "--columns", "id,s", "--where", "id > 1 AND id < 5", "--limit", 2)
    assert done.stderr == f"{csv}: 2 rows\n"
    assert csv.read_text().splitlines()[0] == "id,s"
    assert run("scan", "shop.t", "-o", tmp_path / "t.xlsx").exit_code == 2
    done = run("scan", "shop.t", "-o", csv, "--columns", "id", "--format", "json")
    assert json.loads(done.stdout) == {"file": str(csv), "rows": 6}
    assert run("scan", "shop.t", "-o", tmp_path / "none" / "t.csv", "--columns", "id").exit_code == 2


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_fails_leaves_the_file_that_was_there(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows{ending}"
    file.write_text("the old one")
    batch = pa.record_batch({"id": [1, 2]})

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch
        raise Unavailable("the storage does not answer")

    with pytest.raises(Unavailable):
        export(failing(), batch.schema, file, system_ambient())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(file.name, "the old one")]
    assert export([batch], batch.schema, file, system_ambient()) == 2
    with contextlib.suppress(typer.BadParameter):
        export([batch], batch.schema, tmp_path / "none" / file.name, system_ambient())
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_file_that_is_replaced_keeps_its_rights_and_links_to_it(tmp_path: Path) -> None:
    file, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    rows = pa.table({"id": [1]})
    assert export(rows.to_batches(), rows.schema, link, system_ambient()) == 1
    assert link.is_symlink() and file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == "id\n1\n"


def test_memory_is_bounded_by_some_batches(tmp_path: Path) -> None:
    alive: list[int] = []

    def many() -> Iterator[pa.RecordBatch]:
        for _ in range(250):
            made = pa.record_batch({"text": ["x" * 1000] * 1000})
            alive.append(pa.total_allocated_bytes())
            yield made

    export(many(), pa.schema([("text", pa.string())]), tmp_path / "rows.arrow", system_ambient())
    assert max(alive) - alive[0] < 160 << 20
    assert (tmp_path / "rows.arrow").stat().st_size > 230 << 20

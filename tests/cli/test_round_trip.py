"""What ``scan --format json`` prints, ``write`` reads back as the same rows; and CSV as topics have it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.types import canonical
from log.connector.formats.csv import check_csv_type
from tablestore import Store, Table
from tablestore.incoming.files.row_file import RowFile
from tablestore.incoming.fitting import fit
from tablestore.incoming.given import arrow_rows
from tests.cli.conftest import Run
from tests.filestore.arrays import data_types, stored, values
from tests.log.connector.formats.rows import holdable, opened, plain
from tests.log.schemas import same


@st.composite
def columns(draw: st.DrawFn) -> pa.Table:
    """Rows with some columns of any type, and a number that orders them."""
    kinds = draw(st.lists(data_types(), min_size=1, max_size=3))
    count = draw(st.integers(1, 6))
    fields = [pa.field(f'ü"{at}', canonical(kind)) for at, kind in enumerate(kinds)]
    arrays = [stored(draw(st.lists(values(f.type), min_size=count, max_size=count)), f.type) for f in fields]
    ids = pa.array(range(count), pa.int64())
    return pa.table([ids, *arrays], schema=pa.schema([pa.field("id", pa.int64(), nullable=False), *fields]))


@pytest.mark.slow
def test_what_scan_prints_of_any_type_write_reads_back(run: Run, store: Store) -> None:
    names = (f"shop.t{number}" for number in range(10**9))

    @settings(max_examples=max(8, settings.default.max_examples // 4))
    @given(columns(), st.booleans())
    def survive(rows: pa.Table, array: bool) -> None:
        one, other = (store.create_table(next(names), rows.schema, primary_key=["id"]) for _ in range(2))
        one.write(rows)
        printed = run("scan", one.identifier, "--format", "json").stdout
        if array:
            printed = "[" + printed.replace("}\n{", "}\n,\n{") + "]"
        result = run("write", other.identifier, "-", stdin=printed)
        assert result.exit_code == 0, result.output
        assert same(of(other), of(one))
        store.drop_table(one.identifier)
        store.drop_table(other.identifier)

    survive()


@given(holdable(check_csv_type))
def test_csv_of_topics_below_a_header_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> None:
    try:
        lines = opened("csv", rows.schema).encode(rows)
    except InvalidRequest as error:  # an element that is empty, and the like
        assert error.code == "format-value"
        return
    file = tmp_path_factory.mktemp("csv") / "rows.csv"
    file.write_bytes(b"\n".join([",".join(rows.schema.names).encode(), *(line or b"" for line in lines), b""]))
    assert plain(arrow_rows(RowFile.of(file).rows(rows.schema), rows.schema)) == plain(rows)


@given(columns())
def test_a_file_of_parquet_has_the_rows_that_it_has(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> None:
    file = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pq.write_table(rows, file)
    found = arrow_rows(RowFile.of(file).rows(rows.schema), rows.schema)
    fitted = [fit(found[field.name], field) for field in rows.schema]
    assert same(pa.Table.from_arrays(fitted, schema=rows.schema), rows)


def of(table: Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id").combine_chunks()

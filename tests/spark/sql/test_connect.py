"""SQL by Spark Connect, with clients that are not ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.depth import Depth
from tests.servers.sql_servers import SqlServer, connect_server, remote_session
from tests.spark.sql.conftest import Catalogs
from tests.spark.sql.remote_checks import (
    check_no_file_is_left_out,
    check_sessions_are_apart,
    check_sessions_share_processes,
)
from tests.spark.sql.statements import differences

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def server(catalogs: Catalogs) -> Iterator[SqlServer]:
    with connect_server(catalogs.folder, catalogs.settings, {"TABLESTORE_TOKEN": catalogs.token}) as running:
        yield running


@pytest.mark.deep
@pytest.mark.parametrize("catalog", ["served", "lake"])
def test_a_client_runs_all_statements(server: SqlServer, catalogs: Catalogs, catalog: str, depth: Depth) -> None:
    with remote_session(server, catalogs.folder) as session:
        assert differences(catalog, session.run_all, depth) == []


@pytest.mark.deep  # tests/spark/sql/test_python_processes.py has it without a server
def test_sessions_that_write_share_their_processes(server: SqlServer, catalogs: Catalogs, depth: Depth) -> None:
    check_sessions_share_processes(server, catalogs, "sharing", depth.times(5, deep=40))


@pytest.mark.deep
def test_settings_leave_no_file_out(server: SqlServer, catalogs: Catalogs) -> None:
    check_no_file_is_left_out(server, catalogs, "whole")


@pytest.mark.deep  # tests/spark/sql/test_saved_tables.py has it without Connect
def test_a_table_that_is_saved_over_keeps_its_key(server: SqlServer, catalogs: Catalogs) -> None:
    """The server analyzes the plan after the writer has returned, so that it was taken for CREATE OR REPLACE TABLE."""
    table = "lake.saved.t"
    with remote_session(server, catalogs.folder) as session:
        session.run("CREATE DATABASE lake.saved")
        session.run(f"CREATE TABLE {table} (id BIGINT, v INT, PRIMARY KEY (id)) TBLPROPERTIES ('bucket' = '2')")
        session.run(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
        assert session.save("SELECT 30 AS v, 3L AS id", table) == ""
        session.run(f"INSERT INTO {table} VALUES (3, 31)")
        assert session.run(f"SELECT id, v FROM {table}") == ["3 | 31"], "the key still holds"
        assert "lacks column 'v'" in session.save("SELECT 4L AS id", table)
        session.run(f"CREATE OR REPLACE TABLE {table} AS SELECT 3L AS id, 30 AS v")
        session.run(f"INSERT INTO {table} VALUES (3, 31)")
        assert session.run(f"SELECT count(id) FROM {table}") == ["2"], "the key has gone"


STREAMS: dict[str, tuple[list[list[str]], list[str]]] = {
    "select": ([["select", "name", "id"]], ["1 | a", "2 | b"]),
    "filter": ([["filter", "id > 1"], ["select", "id", "name"]], ["2 | b"]),
    "expressions": ([["selectExpr", "id", "upper(name) AS name"], ["where", "name <> 'B'"]], ["1 | A"]),
    "all": ([], ["1 | a", "2 | b"]),
    "kinds": ([["select", "id", "name", "_kind"]], ["1 | a", "2 | b"]),
}


@pytest.mark.deep
def test_streams_that_name_their_columns(server: SqlServer, catalogs: Catalogs) -> None:
    """Connect analyzes each step of a DataFrame by itself."""
    with remote_session(server, catalogs.folder) as session:
        session.run("CREATE DATABASE lake.streams")
        columns = "(id BIGINT, name STRING, PRIMARY KEY (id))"
        session.run(f"CREATE TABLE lake.streams.t {columns} WITH ('log.system' = 'embedded')")
        assert session.run("INSERT INTO lake.streams.t VALUES (1, 'a'), (2, 'b')") == []
        for number, (case, (calls, rows)) in enumerate(STREAMS.items()):
            target = f"lake.streams.target_{number}"
            session.run(f"CREATE TABLE {target} {columns}")
            error = session.stream("lake.streams.t", calls, target, f"{catalogs.folder}/checkpoint-{number}")
            assert error == "", case
            assert session.run(f"SELECT id, name FROM {target} ORDER BY id") == rows, case


@pytest.mark.deep
def test_sessions_are_apart(server: SqlServer, catalogs: Catalogs) -> None:
    check_sessions_are_apart(server, catalogs)


def test_a_session_that_takes_a_setting_away_gets_no_other_token(server: SqlServer, catalogs: Catalogs) -> None:
    """Without the file the token would be that of the server's environment, which may have other rights."""
    with remote_session(server, catalogs.folder) as session:
        session.unset("spark.sql.catalog.served.token-file")
        refused = "\n".join(session.run("SHOW DATABASES IN served"))
        assert "this service requires a token" in refused

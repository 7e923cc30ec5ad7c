"""SQL by the Thrift server, with clients that are not ours: PyHive, and beeline over JDBC."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tablestore
from tests.depth import Depth
from tests.servers.spark_programs import environment, program, python_processes
from tests.servers.sql_servers import SqlServer, remote_session, thrift_server
from tests.spark.sql.conftest import Catalogs
from tests.spark.sql.deaths import FORGET, killed_within_a_write
from tests.spark.sql.remote_checks import (
    check_no_file_is_left_out,
    check_sessions_are_apart,
    check_sessions_share_processes,
)
from tests.spark.sql.statements import differences
from tests.tables import assert_healthy

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def server(catalogs: Catalogs) -> Iterator[SqlServer]:
    with thrift_server(catalogs.folder, catalogs.settings, {"TABLESTORE_TOKEN": catalogs.token}) as running:
        yield running


@pytest.mark.deep  # tests/spark/sql/test_python_processes.py has it without a server
def test_sessions_that_write_share_their_processes(server: SqlServer, catalogs: Catalogs, depth: Depth) -> None:
    check_sessions_share_processes(server, catalogs, "sharing", depth.times(5, deep=40))


@pytest.mark.deep
def test_settings_leave_no_file_out(server: SqlServer, catalogs: Catalogs) -> None:
    check_no_file_is_left_out(server, catalogs, "whole")


@pytest.mark.parametrize("catalog", ["served", pytest.param("lake", marks=pytest.mark.deep)])
def test_pyhive_runs_all_statements(server: SqlServer, catalogs: Catalogs, catalog: str, depth: Depth) -> None:
    with remote_session(server, catalogs.folder) as session:
        assert differences(catalog, session.run_all, depth) == []


@pytest.mark.deep
def test_beeline(server: SqlServer, catalogs: Catalogs) -> None:
    statements = [
        "CREATE DATABASE lake.bee",
        "CREATE TABLE lake.bee.t (id BIGINT PRIMARY KEY, v INT) WITH ('bucket' = '1')",
        "INSERT INTO lake.bee.t VALUES (1, 10), (2, 20)",
        "MERGE INTO lake.bee.t t USING (SELECT 2L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = v + 1",
        "USE lake.bee",
        "SELECT * FROM t ORDER BY id",
        "CALL sys.doctor('bee.t')",
    ]
    beeline = [program("beeline"), "-u", server.url.replace("thrift", "jdbc:hive2"), "-n", "anybody"]
    ended = subprocess.run(
        [*beeline, "--silent=true", "--outputformat=tsv2", *(p for s in statements for p in ("-e", f"{s};"))],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=300,
    )
    assert "Error" not in ended.stderr, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line not in ("", "Result")]
    assert lines == ["id\tv", "1\t10", "2\t21", "severity\tcode\tpath\tmessage"]
    assert len(python_processes(server.process.pid)) == 1


@pytest.mark.deep  # Connect has its sessions in the same way
def test_sessions_are_apart(server: SqlServer, catalogs: Catalogs) -> None:
    check_sessions_are_apart(server, catalogs)


@pytest.mark.deep
def test_the_death_of_the_python_process_within_a_write(server: SqlServer, catalogs: Catalogs) -> None:
    with remote_session(server, catalogs.folder) as session, remote_session(server, catalogs.folder) as other:
        assert session.run("CREATE DATABASE lake.dying") == []
        assert session.run("CREATE TABLE lake.dying.t (id BIGINT PRIMARY KEY, v INT) WITH ('bucket' = '1')") == []
        assert session.run("INSERT INTO lake.dying.t VALUES (1, 10)") == []
        with tablestore.connect(catalogs.warehouse) as store, ThreadPoolExecutor(1) as beside:
            table = store.table("dying.t")
            with killed_within_a_write(table, server.process.pid):
                write = beside.submit(session.run, "INSERT INTO lake.dying.t VALUES (2, 20)")
            assert "Python process ended" in "\n".join(write.result())
            for client in (session, other):
                assert client.run("SELECT * FROM lake.dying.t ORDER BY id") == ["1 | 10"]
            assert session.run("INSERT INTO lake.dying.t VALUES (2, 21)") == []
            assert session.run_all([*FORGET]) == [["null"], ["null"]]
            assert other.run("SELECT * FROM lake.dying.t ORDER BY id") == ["1 | 10", "2 | 21"]
            assert len(python_processes(server.process.pid)) == 1
            assert_healthy(table.filestore)

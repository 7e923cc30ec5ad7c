"""What holds for sessions in a server of others, whether Thrift or Spark Connect."""

from __future__ import annotations

from pathlib import Path

from tests.servers.spark_programs import python_daemons
from tests.servers.sql_servers import SqlServer, remote_session
from tests.spark.sql.conftest import Catalogs

__all__ = ["check_no_file_is_left_out", "check_sessions_are_apart", "check_sessions_share_processes"]


def check_no_file_is_left_out(server: SqlServer, catalogs: Catalogs, database: str) -> None:
    """A session cannot make an UPDATE go on without a file that is missing."""
    with remote_session(server, catalogs.folder) as session:
        session.run(f"CREATE DATABASE lake.{database}")
        session.run(f"CREATE TABLE lake.{database}.t (id BIGINT, v INT)")
        for row in ("(1, 1)", "(2, 2)"):
            session.run(f"INSERT INTO lake.{database}.t VALUES {row}")
        session.run("SET spark.sql.files.ignoreMissingFiles=true")
        file = next(Path(catalogs.warehouse, database, "t").rglob("*.parquet"))
        contents = file.read_bytes()
        file.unlink()
        for statement in (f"SELECT sum(v) FROM lake.{database}.t", f"UPDATE lake.{database}.t SET v = v + 1"):
            assert file.name in "\n".join(session.run(statement))
        file.write_bytes(contents)
        assert session.run(f"SELECT sum(v) FROM lake.{database}.t") == ["3"]


def check_sessions_are_apart(server: SqlServer, catalogs: Catalogs) -> None:
    """Two sessions name the same catalog differently, and neither gets what the server or the other has."""
    mine = "SET spark.sql.catalog.mine"
    with remote_session(server, catalogs.folder) as one, remote_session(server, catalogs.folder) as other:
        for number, session in enumerate((one, other)):
            session.run(f"{mine}=tablestore.spark.TablestoreCatalog")
            session.run(f"{mine}.uri={catalogs.folder}/mine-{number}")
            assert session.run(f"CREATE DATABASE mine.of_{number}") == []
            assert session.run(f"CREATE TABLE mine.of_{number}.t AS SELECT {number} AS x") == []
        assert one.run("SHOW DATABASES IN mine") == ["of_0"]
        assert other.run("SHOW DATABASES IN mine") == ["of_1"]
        assert other.run("SELECT x FROM mine.of_1.t") == ["1"]
        assert "cannot be found" in "\n".join(other.run("SELECT x FROM mine.of_0.t"))

    with remote_session(server, catalogs.folder) as one, remote_session(server, catalogs.folder) as other:
        assert "Error" not in "\n".join(one.run("SHOW DATABASES IN served"))
        for setting in ("=tablestore.spark.TablestoreCatalog", f".uri={catalogs.url}"):
            other.run(f"{mine}{setting}")
        no_token = "\n".join(other.run("SHOW DATABASES IN mine"))
        assert "this service requires a token" in no_token  # though the server's environment has one
        for setting in ("=tablestore.spark.TablestoreCatalog", f".uri={catalogs.url}"):
            one.run(f"{mine}{setting}")
        one.run(f"SET `spark.sql.catalog.mine.token-file`={catalogs.folder}/token")
        other.run(f"SET spark.sql.catalog.served.uri={catalogs.url}/elsewhere")
        for session, catalog in ((one, "mine"), (other, "served")):
            refused = "\n".join(session.run(f"SHOW DATABASES IN {catalog}"))
            assert "set it where the server is started" in refused
            assert catalogs.token not in refused


def check_sessions_share_processes(server: SqlServer, catalogs: Catalogs, database: str, sessions: int) -> None:
    """A server kept Python processes for each session that had written; after many there are no more than after two."""
    daemons, workers = [], []
    with remote_session(server, catalogs.folder) as session:
        session.run(f"CREATE DATABASE lake.{database}")
        session.run(f"CREATE TABLE lake.{database}.t (id BIGINT PRIMARY KEY, v INT)")
        for number in range(sessions):
            session.run("SET the.session=this one")
            session.renew()
            assert session.run("SET the.session") == ["the.session | <undefined>"]
            assert session.run(f"INSERT INTO lake.{database}.t VALUES ({number}, 1)") == []
            found = python_daemons(server.process.pid)
            daemons.append(len(found))
            workers.append(sum(len(daemon.children()) for daemon in found))
        assert session.run(f"SELECT count(*) FROM lake.{database}.t") == [str(sessions)]
    assert 0 < max(daemons[2:]) <= daemons[1], daemons
    assert max(workers) <= 2 * daemons[1], "each daemon has a worker for each task that runs, which are two at most"

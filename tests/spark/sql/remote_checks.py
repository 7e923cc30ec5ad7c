"""What holds for sessions in a server of others, whether Thrift or Spark Connect."""

from __future__ import annotations

from tests.servers.sql_servers import SqlServer, remote_session
from tests.spark.sql.conftest import Catalogs

__all__ = ["check_sessions_are_apart"]


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

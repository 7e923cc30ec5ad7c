"""Opens connections to the catalog's database, migrates its schema, and translates its errors.

SQLite uses a write-ahead log (readers never wait), a busy time-out (writers wait for one another), and ``BEGIN
IMMEDIATE`` for every transaction that will write: it takes its lock before it reads, and never fails half way with
"locked".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnClause,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    inspect,
    literal_column,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from catalog_service.database.locks import AdvisoryLocks, FileLocks, NameLocks
from catalog_service.database.url import parse_database_url, shown_url
from filestore.ambient import Ambient
from filestore.errors import Corrupt, InvalidRequest, TableStoreError, Unavailable, Unsupported
from filestore.refused import refused
from filestore.sqlite_files import Connection as SqliteConnection
from filestore.sqlite_files import is_refusal, open_sqlite, why_refused

if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig
    from sqlalchemy.dialects import postgresql

__all__ = [
    "CATALOG_FILE",
    "default_database_url",
    "downgrade",
    "insert_into",
    "is_there",
    "locks_of",
    "migrate",
    "now_ms",
    "open_engine",
    "reading",
    "writing",
]

CATALOG_FILE = "catalog.db"
SQLITE_BUSY_S = 10.0
_MIGRATION_LOCK = "_migration"  # cannot be a database's name: those begin with a letter
_VERSION_TABLE = "alembic_version"
_UNCHANGED = "nothing was changed"
_UNKNOWN = "the change may have been made or not"
MIGRATIONS = Path(__file__).parent / "migrations"


def default_database_url(warehouse: str) -> str:
    """The URL of the embedded catalog of a warehouse on a local disk."""
    return URL.create("sqlite", database=str(Path(warehouse) / CATALOG_FILE)).render_as_string()


def open_engine(database_url: str) -> Engine:
    """Makes an engine for a catalog's database. It connects with its first use.

    Raises:
        InvalidRequest: ``bad-database-url``.
        Unsupported: ``database-driver``: the driver is not installed, or the database is not supported.
        Unavailable: the folder of an SQLite file cannot be created.
    """
    url = parse_database_url(database_url)
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url)
    return _open_server(url, pool_size=8, max_overflow=16)


def is_there(database_url: str) -> bool:
    """Returns whether a catalog's database exists, so that opening it creates nothing: False for a missing SQLite file.

    Raises:
        InvalidRequest: ``bad-database-url``.
        Unsupported: ``database-driver``.
    """
    url = parse_database_url(database_url)
    if url.get_backend_name() != "sqlite":
        return True  # an administrator creates a server's database
    try:
        _sqlite_path(url).stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # opening it raises an error that names the cause
    return True


def locks_of(engine: Engine, ambient: Ambient) -> NameLocks:
    """The locks for a catalog: they cover all machines that can use its database."""
    if engine.dialect.name == "postgresql":
        return AdvisoryLocks(_open_server(engine.url, poolclass=NullPool), ambient)
    return FileLocks(Path(f"{engine.url.database}-locks"), ambient)


def insert_into(engine: Engine, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that may say ON CONFLICT, which each database has of its own."""
    if engine.dialect.name != "postgresql":
        return sqlite.insert(table)
    from sqlalchemy.dialects.postgresql import insert  # it imports three drivers' parts, which SQLite needs not

    return insert(table)


def migrate(engine: Engine, locks: NameLocks) -> None:
    """Upgrades the schema to this version. Several processes may call it at once.

    Raises:
        Unsupported: ``catalog-newer``: a newer version of Tablestore created or changed this catalog.
        Unavailable: the database is locked or cannot be written.
    """
    # A catalog that is up to date takes no lock, so that it can be opened on a read-only disk, and does not import
    # alembic, which takes a quarter of a second.
    known = _revisions()
    if _revision(engine) == known[-1]:
        return
    with locks.hold(_MIGRATION_LOCK):
        _check_known(_revision(engine), known)
        _use_write_ahead_log(engine)
        with _alembic(engine) as (command, config):
            command.upgrade(config, "head")


def downgrade(engine: Engine, locks: NameLocks, revision: str) -> None:
    """Changes the schema back to that of an older version, in one transaction. REQUIRES: no other process uses it.

    Args:
        engine: The catalog's database.
        locks: Its locks.
        revision: The newest revision that the older version knows, as in "0002".

    Raises:
        InvalidRequest: ``unknown-revision``.
        Unsupported: ``catalog-newer``.
        Unavailable: the database is locked or cannot be written.
    """
    known = _revisions()
    with locks.hold(_MIGRATION_LOCK):
        current = _revision(engine)
        _check_known(current, known)
        older = [each for each in known if current is not None and each <= current]
        if revision not in older:
            raise InvalidRequest(
                f"there is no revision {revision!r} to downgrade to from {current}: choose one of {older}",
                code="unknown-revision",
            )
        with _alembic(engine) as (command, config):
            command.downgrade(config, revision)


@contextmanager
def _alembic(engine: Engine) -> Iterator[tuple[ModuleType, AlembicConfig]]:
    """Yields Alembic's commands, which then run in one transaction, so that an error changes nothing."""
    import alembic.command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        yield alembic.command, config


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Opens a transaction for one consistent read."""
    with _translated(engine), engine.connect() as connection, connection.begin():
        yield connection
        raw: Any = connection.connection.dbapi_connection
        if isinstance(raw, SqliteConnection) and not raw.read_was_consistent():
            raise Unavailable(
                f"another process changed the catalog {shown_url(engine.url)} during a read that had no lock, "
                "because the disk takes no writes; retry",
                code="catalog-locked",
            )


@contextmanager
def writing(engine: Engine, *, may_contradict: bool = False) -> Iterator[Connection]:
    """Opens a transaction for changes: it applies all of them or none.

    Args:
        engine: The catalog's database.
        may_contradict: The caller handles an `IntegrityError`; otherwise no row that is as it was written causes one.

    Raises:
        Corrupt: ``catalog-corrupt``.
        Unavailable: ``catalog-locked``, ``catalog-read-only``, ``catalog-unavailable``; nothing was changed, unless the
            sentence says that it may have been.
        IntegrityError: a row contradicts another one; nothing was changed.
    """
    done = False
    try:
        with engine.connect().execution_options(tablestore_write=True) as connection, connection.begin():
            yield connection
            done = True
    except IntegrityError as error:
        if may_contradict:
            raise  # it is about rows, and the repository knows which
        raise Corrupt(
            f"rows of {shown_url(engine.url)} contradict each other: {error.orig}; restore it from a backup, or "
            "register the tables in a new one (`tablestore register`)",
            code="catalog-corrupt",
        ) from error
    except (SQLAlchemyError, UnicodeDecodeError) as error:
        # The connection may have been lost after the server had committed.
        raise _meaning(error, engine, _UNKNOWN if done else _UNCHANGED) from error


def now_ms(engine: Engine) -> ColumnClause[int]:
    """The database's own clock in a statement, in milliseconds since 1970: all processes share it."""
    clock = {
        "sqlite": "(julianday('now') - 2440587.5) * 86400000",
        "postgresql": "extract(epoch FROM clock_timestamp()) * 1000",
    }
    return literal_column(f"CAST({clock[engine.dialect.name]} AS BIGINT)", BigInteger)


def _open_server(url: URL, **pool: Any) -> Engine:
    # These notice a lost server within seconds; TCP's own time-outs take minutes.
    arguments = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    arguments["tcp_user_timeout"] = 25_000  # TCP sends no keepalives while a request is not acknowledged
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            connect_args={k: v for k, v in arguments.items() if k not in url.query} if _is_libpq(url) else {},
            **pool,
        )
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"the driver of {shown_url(url)} is not installed ({error}): pip install 'lakehouse-tablestore[postgres]'",
            code="database-driver",
        ) from error


def _is_libpq(url: URL) -> bool:
    return url.get_driver_name() in ("psycopg", "psycopg2")


def _sqlite_path(url: URL) -> Path:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidRequest(
            f"{shown_url(url)} does not name a file: a catalog must outlive its process, as in "
            "sqlite:////data/catalog.db",
            code="bad-database-url",
        )
    return Path(url.database).absolute()


def _open_sqlite(url: URL) -> Engine:
    path = _sqlite_path(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot create the folder {path.parent}"
        raise refused(what, error, "catalog-read-only", read_only="catalog-read-only") from error
    engine = create_engine(
        url.set(database=str(path)),
        connect_args={"timeout": SQLITE_BUSY_S} if "timeout" not in url.query else {},
    )
    event.listen(engine, "do_connect", _connect_sqlite)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "checkin", _discard_fallback)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _connect_sqlite(_: Dialect, __: ConnectionPoolEntry, arguments: Sequence[Any], settings: dict[str, Any]) -> Any:
    """Connects also where nothing can be written: tables can still be listed and opened there."""
    return open_sqlite(Path(arguments[0]), create=True, **settings)


def _discard_fallback(connection: Any, entry: ConnectionPoolEntry) -> None:
    if isinstance(connection, SqliteConnection) and connection.is_fallback:
        entry.invalidate()  # the next connection may be able to write again, and sees others' changes


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    # Python's own transactions begin too late (at the first write), so they are switched off.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("tablestore_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _use_write_ahead_log(engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        return
    with _translated(engine):
        raw = engine.raw_connection()
        try:
            raw.cursor().execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise _meaning(error, engine) from error
        finally:
            raw.close()


def _revisions() -> list[str]:
    """All revisions, the newest last: the name of each file begins with its revision."""
    return sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def _revision(engine: Engine) -> str | None:
    with reading(engine) as connection:
        if not inspect(connection).has_table(_VERSION_TABLE):
            return None
        found: str | None = connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}"))
        return found


def _check_known(revision: str | None, known: Sequence[str]) -> None:
    if revision is not None and revision not in known:
        raise Unsupported(
            f"a newer Tablestore made this catalog (revision {revision}): upgrade lakehouse-tablestore to open it",
            code="catalog-newer",
        )


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, UnicodeDecodeError) as error:  # a message of SQLite quotes the damaged bytes
        raise _meaning(error, engine) from error


def _meaning(error: BaseException, engine: Engine, effect: str = _UNCHANGED) -> TableStoreError:
    error = (error.orig if isinstance(error, DBAPIError) else None) or error
    where = shown_url(engine.url)
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Unavailable(
            f"the catalog {where} is locked by another process: nothing was changed; retry",
            code="catalog-locked",
        )
    if is_refusal(error) and (cause := why_refused(Path(engine.url.database or ""))) is not None:
        what = f"cannot open or write the catalog {where}, so nothing was changed"
        return refused(what, cause, "catalog-unavailable", read_only="catalog-read-only")
    if name.startswith("SQLITE_READONLY"):
        return Unavailable(
            f"the catalog {where} is read-only: nothing was changed; make the file and its folder writable",
            code="catalog-read-only",
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or _is_undecodable(error):
        return Corrupt(f"{where} is not a catalog: {error}; restore it from a backup", code="catalog-corrupt")
    return Unavailable(
        f"the catalog's database {where} did not answer: {error}; {effect}; retry", code="catalog-unavailable"
    )


def _is_undecodable(error: BaseException) -> bool:
    """Returns whether text in an SQLite file is not UTF-8. Python's driver has no code for that."""
    return isinstance(error, UnicodeDecodeError) or str(error).startswith("Could not decode to UTF-8")

"""`Database`: a DuckDB database in memory that runs a program (`tablestore.local_sql.programs`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.contexts import Closing
from tablestore.local_sql.programs import Program, Read
from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.typed import identifier, required_type

if TYPE_CHECKING:
    import duckdb

__all__ = ["Database"]

_BATCH_ROWS = 1 << 17
_GIVEN = "given"
_LOADED = "{} loaded"
_LOSE_ERRORS = ("expression_rewriter", "statistics_propagation", "unused_columns")
"""Parts of DuckDB's optimizer that are off: with them a value that does not exist is no error, as it is in Spark.

It makes ``l < -5`` of ``-l > 5``, and drops conditions that no row can fail, and columns that the result does not need.
"""


class _Engine:
    """The DuckDB of this process, which takes a while to start. Each program has a database of its own in it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count()
        self._process = 0
        self._first: duckdb.DuckDBPyConnection | None = None
        self._memory: dict[str, int] = {}

    def attach(self, memory: int) -> tuple[duckdb.DuckDBPyConnection, str]:
        """Makes a database; returns a connection that uses it, and its name.

        All programs that run at once have the memory of the largest one.
        """
        with self._lock:
            if self._first is None or self._process != os.getpid():  # a fork has none of its threads
                self._first, self._process, self._memory = self._started(), os.getpid(), {}
            name = f"program_{next(self._numbers)}"
            self._memory[name] = memory
            self._first.execute(f"SET memory_limit = '{max(self._memory.values())}B'")
            self._first.execute(f"ATTACH ':memory:' AS {name}")
            connection = self._first.cursor()
            connection.execute(f"USE {name}")
            return connection, name

    def detach(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Forgets a database. Results that were not read to their end have been closed."""
        connection.close()
        with self._lock:
            del self._memory[name]
            assert self._first is not None
            self._first.execute(f"DETACH {name}")

    def _started(self) -> duckdb.DuckDBPyConnection:
        import duckdb  # here, since most processes compute no query

        settings: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": str(Path(gettempdir(), f"tablestore-duckdb-{os.getpid()}")),  # made when it is needed
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "preserve_insertion_order": False,
            "disabled_optimizers": ",".join(_LOSE_ERRORS),
        }
        return duckdb.connect(":memory:", config=settings)


_ENGINE = _Engine()


class Database(Closing):
    """Runs programs. Rows that do not fit into its memory are on the local disk while it computes.

    Args:
        memory: The most bytes that it takes.
    """

    def __init__(self, memory: int) -> None:
        self._database, self._name = _ENGINE.attach(memory)
        self._open: list[pa.RecordBatchReader] = []

    def close(self) -> None:
        """Forgets everything, results that were not read to their end among it."""
        for reader in self._open:
            reader.close()
        self._open.clear()
        _ENGINE.detach(self._database, self._name)

    def run(self, program: Program, read: Callable[[str, Read], Iterable[pa.Table]]) -> None:
        """Makes the relations of a program.

        Args:
            program: The program.
            read: Returns the rows of a table, in the columns that are needed. Relations before it are there already.

        Raises:
            NotLocalError: DuckDB cannot compute them: it takes more memory, or a value is none.
        """
        for name, relation in program.relations.items():
            if isinstance(relation, Read):
                self._load(name, relation, read(name, relation))
            else:
                kind = "TABLE" if relation.is_shared else "VIEW"
                self._execute(f"CREATE {kind} {identifier(name)} AS {relation.text}")

    def make(self, name: str, text: str) -> None:
        """Computes the result of a query, and keeps it under a name."""
        self._execute(f"CREATE TABLE {identifier(name)} AS {text}")

    def rows(self, text: str, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yields the rows of a query, in batches.

        Args:
            text: The query.
            schema: The types of its columns.
        """
        with self._words():
            reader = self._database.sql(text).to_arrow_reader(_BATCH_ROWS)
        self._open.append(reader)
        while True:
            with self._words():
                batch = next(iter(reader), None)
                if batch is None:
                    return
                rows = pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)
            yield rows

    def _load(self, name: str, read: Read, parts: Iterable[pa.Table]) -> None:
        """Loads rows. Each part is inserted by itself, so that an error of who reads them stays what it is."""
        loaded = identifier(_LOADED.format(name))
        columns = ", ".join(f"{identifier(one)} {required_type(read.schema.field(one).type)}" for one in read.columns)
        self._execute(f"CREATE TABLE {loaded} ({columns})")
        kinds = pa.schema([(one, _without_zone(read.schema.field(one).type)) for one in read.columns])
        for part in parts:
            if part.num_rows:
                with self._words():
                    self._database.register(_GIVEN, part.select(read.columns).cast(kinds))
                self._execute(f"INSERT INTO {loaded} FROM {_GIVEN}")
                self._database.unregister(_GIVEN)
        values = [identifier(one.name) if one.name in read.columns else _absent(one) for one in read.schema]
        self._execute(f"CREATE VIEW {identifier(name)} AS SELECT {', '.join(values)} FROM {loaded}")

    def _execute(self, text: str) -> None:
        with self._words():
            self._database.execute(text)

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, *_errors()) as error:
            raise NotLocalError(f"DuckDB cannot compute it: {str(error).strip().splitlines()[0]}") from error


def _errors() -> tuple[type[Exception], ...]:
    import duckdb

    return (duckdb.Error,)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    """Returns the type in which DuckDB takes values: a moment is its microseconds in UTC."""
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind


def _absent(column: pa.Field) -> str:
    """Returns a column that nothing needs."""
    try:
        kind = required_type(column.type)
    except NotLocalError:
        kind = "INTEGER"
    return f"CAST(NULL AS {kind}) AS {identifier(column.name)}"

"""`Session`: statements one after the other, each by the engine that can run it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from filestore.contexts import Closing
from filestore.errors import InvalidRequest, NotFound, Unavailable, Unsupported
from tablestore.shell.conditions import not_plain
from tablestore.shell.engines import Engine
from tablestore.shell.polars_engine import run_plan
from tablestore.shell.results import Result
from tablestore.shell.selects import plan, select_of
from tablestore.shell.statements import changes_session, used_database
from tablestore.store import Store
from tablestore.table import Table

if TYPE_CHECKING:
    from tablestore.shell.spark_engine import SparkEngine

__all__ = ["Session"]


class Session(Closing):
    """Statements over one store.

    Args:
        store: The store.
        start_spark: Starts Spark with a current database; it is called once, when the first statement needs it.
        catalog: The store's name in statements.
        database: The current database.
        engine: Which engine runs statements.
        plain: Whether a SELECT means what it means without settings; with settings of SQL all are for Spark.
        starting: Is called with the reason before Spark starts, which takes some seconds.
    """

    def __init__(
        self,
        store: Store,
        start_spark: Callable[[str | None], SparkEngine],
        *,
        catalog: str = "lake",
        database: str | None = None,
        engine: Engine = Engine.AUTO,
        plain: bool = True,
        starting: Callable[[str], None] = lambda _: None,
    ) -> None:
        if database is not None and database not in store.list_databases():
            raise NotFound(f"there is no database {database!r} in {store.target}", code="database-not-found")
        self.store = store
        self.catalog = catalog
        self.database = database
        self._engine = engine
        self._start_spark = start_spark
        self._starting = starting
        self._plain = plain
        self._spark: SparkEngine | None = None

    def run(self, statement: str, limit: int | None = None) -> Result:
        """Runs a statement.

        Args:
            statement: One statement, without a semicolon behind it.
            limit: How many rows are needed at most.

        Raises:
            Unsupported: ``not-for-polars``: polars has to run it, and cannot.
            TableStoreError: what is wrong with it.
            KeyboardInterrupt: Ctrl-C, after the statement has ended.
        """
        if self._engine is Engine.SPARK:
            return self._by_spark(statement, limit, None)
        try:
            if self._uses(statement):
                return Result("polars")
            return self._by_polars(statement, limit)
        except Unsupported as error:
            if error.code != "not-plain":
                raise
            if self._engine is Engine.POLARS:
                raise Unsupported(
                    f"polars cannot run the statement with the meaning that it has in Spark: {error.message}. Leave "
                    "--engine polars out, or write it as a SELECT over one table",
                    code="not-for-polars",
                ) from error
            return self._by_spark(statement, limit, error.message)

    def _by_polars(self, statement: str, limit: int | None) -> Result:
        if not self._plain:
            raise not_plain("an earlier statement or setting may have changed what it means")
        select = select_of(statement)
        table = self._table(select.table)
        state = table.filestore.state()
        return run_plan(plan(select, state.definition.schema.to_arrow()), table, state.version, limit)

    def _table(self, parts: tuple[str, ...]) -> Table:
        """Opens the table that a statement names, if it is a managed one of the store."""
        if len(parts) == 3 and parts[0] == self.catalog:
            parts = parts[1:]
        if len(parts) == 1 and self.database is not None:
            parts = (self.database, *parts)
        if len(parts) != 2 or any("." in part for part in parts):
            raise not_plain(f"{'.'.join(parts)} is not a table of the catalog {self.catalog}")
        name = ".".join(parts)
        try:
            table = self.store.table(name)
        except InvalidRequest as error:
            if error.code != "bad-name":
                raise
            raise not_plain(error.message) from error
        except NotFound as error:
            if error.code == "database-not-found":
                raise not_plain(f"{parts[0]} is not a database of the catalog {self.catalog}") from error
            if error.code == "is-view":
                raise not_plain(f"{name} is a view") from error
            raise
        if not isinstance(table, Table):
            raise not_plain(f"{name} is a Kafka topic")
        return table

    def _uses(self, statement: str) -> bool:
        """Changes the current database, if that is what the statement does and Spark need not know it yet."""
        used = used_database(statement)
        if used is None or self._spark is not None:
            return False
        if len(used) == 2 and used[0] == self.catalog:
            used = used[1:]
        if len(used) != 1 or used[0] not in self.store.list_databases():
            return False
        self.database = used[0]
        return True

    def _by_spark(self, statement: str, limit: int | None, reason: str | None) -> Result:
        if self._spark is None:
            if find_spec("pyspark") is None:
                raise Unavailable(
                    f"Spark has to run the statement{f', since {reason},' if reason else ''} and it is not installed: "
                    "pip install 'lakehouse-tablestore[spark]'",
                    code="spark-missing",
                )
            self._starting(reason or "--engine spark")
            self._spark = self._start_spark(self.database)
        if changes_session(statement):
            self._plain = False
        found = self._spark.run(statement, limit)
        if not self._plain:
            self._follow_names(self._spark)
        return Result(found.engine, found.schema, found.batches, reason)

    def _follow_names(self, spark: SparkEngine) -> None:
        catalog, database = spark.current
        self.database = database if catalog == self.catalog and database else None

    @property
    def uses_spark(self) -> bool:
        """Returns whether Spark runs."""
        return self._spark is not None

    def close(self) -> None:
        """Stops Spark."""
        if self._spark is not None:
            self._spark.close()
            self._spark = None

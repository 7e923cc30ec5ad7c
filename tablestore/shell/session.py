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
from tablestore.shell.refusals import Block, blocks_of, check_beginning, check_columns
from tablestore.shell.results import Result
from tablestore.shell.selects import plan, select_of
from tablestore.shell.statements import changes_session, used_database
from tablestore.store import Store
from tablestore.table import Table

if TYPE_CHECKING:
    from tablestore.shell.spark_engine import SparkEngine

__all__ = ["Session"]

_TASKS_END_S = 5.0
"""Python's tasks end after two seconds."""


class Session(Closing):
    """Statements over one store.

    Args:
        store: The store.
        start_spark: Starts Spark with a current database; it is called once, when the first statement needs it.
        catalog: The store's name in statements.
        database: The current database.
        engine: Which engine runs statements.
        plain: Whether a SELECT means what it means without settings; with settings of SQL all are for Spark.
        say: Is called with what a user has to wait for: why Spark starts, which takes some seconds, and for which tasks
            a statement waits.
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
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        if database is not None and database not in store.list_databases():
            raise NotFound(f"there is no database {database!r} in {store.target}", code="database-not-found")
        self.store = store
        self.catalog = catalog
        self.database = database
        self._engine = engine
        self._start_spark = start_spark
        self._say = say
        self._plain = self._plain_at_first = plain
        self._left = False
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
            table = self.store.any_table(name)
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
            if self._plain:
                self._refuse(statement)
            if find_spec("pyspark") is None:
                raise Unavailable(
                    f"Spark has to run the statement{f', since {reason},' if reason else ''} and it is not installed: "
                    "pip install 'lakehouse-tablestore[spark]'",
                    code="spark-missing",
                )
            self._say(f"Spark starts: {reason or '--engine spark'}")
            self._spark = self._start_spark(self.database)
        if self._left and (tasks := self._spark.tasks()):
            self._say(f"waiting for {_counted(tasks)} of a cancelled statement; Ctrl-C does not wait")
        self._left = False
        if changes_session(statement):
            self._plain = False
        found = self._spark.run(statement, limit)
        if not self._plain:
            self._follow_names(self._spark)
        return Result(found.engine, found.schema, found.batches, reason)

    def _refuse(self, statement: str) -> None:
        """Refuses what Spark would refuse once it has started; afterwards Spark says so soon enough itself."""
        check_beginning(statement)
        for block in blocks_of(statement):
            if (known := self._columns(block)) is not None:
                check_columns(block, known)

    def _columns(self, block: Block) -> dict[str, list[str]] | None:
        """Returns the columns of all tables of a query; None if one is not a managed table of the store."""
        try:
            return {alias: self._table(parts).schema.names for alias, parts in block.sources.items()}
        except Unsupported as error:
            if error.code != "not-plain":
                raise
            return None

    def end_left_tasks(self) -> None:
        """Ends what a cancelled statement has left: Spark cannot stop a task that does not ask whether it is cancelled.

        Such tasks keep the processors, and the next statement would wait for them. Spark is ended with them, unless it
        has settings or temporary views of the user.
        """
        spark = self._spark
        if spark is None or not (tasks := spark.tasks(_TASKS_END_S)):
            return
        if self._plain and spark.owned:
            self.restart()
            self._say(f"{_counted(tasks)} of it did not end, so Spark was ended, and starts again when it is needed")
        else:
            self._left = True
            kept = r": \restart ends Spark, with its settings and temporary views" if spark.owned else ""
            self._say(f"{_counted(tasks)} of it did not end, and the next statement of Spark waits for them{kept}")

    def restart(self) -> None:
        """Ends Spark with all that runs in it; the next statement that needs it starts it again."""
        if self._spark is not None:
            self._spark.end()
            self._spark = None
        self._plain, self._left = self._plain_at_first, False

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


def _counted(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks} tasks"

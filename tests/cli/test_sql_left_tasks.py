"""Tasks of a cancelled statement that do not end: Spark is ended with them, or a line says who waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tablestore import Store
from tablestore.shell.results import Result
from tablestore.shell.session import Session


@dataclass
class Spark:
    """Has tasks that run on when their statement was cancelled."""

    running: int = 2
    owned: bool = True
    current: tuple[str, str] = ("lake", "shop")
    calls: list[str] = field(default_factory=list)

    def tasks(self, seconds: float = 0) -> int:
        return self.running

    def run(self, statement: str, limit: int | None) -> Result:
        self.calls.append(statement)
        return Result("Spark")

    def end(self) -> None:
        self.calls.append("the end")

    def close(self) -> None:
        self.calls.append("closed")


def session_of(store: Store, *engines: Spark) -> tuple[Session, list[str]]:
    notes: list[str] = []
    started: Iterator[Spark] = iter(engines)
    return Session(store, lambda _: next(started), say=notes.append), notes  # type: ignore[arg-type,return-value]


def test_spark_is_ended_with_them(store: Store) -> None:
    """Found by a stranger: the tasks ran on, and the next statement waited for 70 seconds without a word."""
    first, second = Spark(), Spark()
    session, notes = session_of(store, first, second)
    session.run("SHOW TABLES")
    session.end_left_tasks()
    assert notes[-1] == "2 tasks of it did not end, so Spark was ended, and starts again when it is needed"
    session.run("SHOW VIEWS")
    assert (first.calls, second.calls) == (["SHOW TABLES", "the end"], ["SHOW VIEWS"])
    assert [line.split(":")[0] for line in notes].count("Spark starts") == 2


@pytest.mark.parametrize("owned", [True, False])
def test_settings_of_the_user_are_kept_and_the_next_statement_says_that_it_waits(store: Store, owned: bool) -> None:
    spark = Spark(owned=owned)
    session, notes = session_of(store, spark)
    session.run("SET x = 1")
    session.end_left_tasks()
    assert ("\\restart" in notes[-1], "the next statement of Spark waits for them" in notes[-1]) == (owned, True)
    spark.running = 1
    session.run("SHOW TABLES")
    assert notes[-1] == "waiting for 1 task of a cancelled statement; Ctrl-C does not wait"
    session.run("SHOW TABLES")
    assert len(notes) == 3
    assert "the end" not in spark.calls


def test_all_is_well_if_they_end(store: Store) -> None:
    spark = Spark(running=0)
    session, notes = session_of(store, spark)
    session.end_left_tasks()
    session.run("SHOW TABLES")
    session.end_left_tasks()
    assert (len(notes), spark.calls) == (1, ["SHOW TABLES"])


def test_a_restart_forgets_settings(store: Store) -> None:
    first, second = Spark(), Spark()
    session, _ = session_of(store, first, second)
    session.restart()
    session.run("SET x = 1")
    session.restart()
    session.run("SHOW TABLES")
    session.end_left_tasks()
    assert (first.calls, second.calls) == (["SET x = 1", "the end"], ["SHOW TABLES", "the end"])

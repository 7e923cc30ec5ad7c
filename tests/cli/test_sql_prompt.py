"""The prompt of ``tablestore sql``: lines, commands, completion; no terminal is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.errors import Unavailable
from tablestore import Store, Table
from tablestore.cli.arguments import Format
from tablestore.cli.prompt import Conversation, completer, terminal
from tablestore.cli.results import Display
from tablestore.shell.completion import Names, completions
from tablestore.shell.session import Session
from tests.cli.conftest import Run

Talk = Callable[..., tuple[bool, list[str], list[str]]]


def no_spark(_: str | None) -> None:
    raise AssertionError("Spark is not needed")


@pytest.fixture
def session(store: Store, orders: Table) -> Session:
    orders.write(pa.table({"id": [1], "status": ["OPEN"]}))
    return Session(store, no_spark)  # type: ignore[arg-type]


@pytest.fixture
def display() -> Display:
    return Display(Format.TABLE, None)


@pytest.fixture
def talk(session: Session, display: Display) -> Talk:
    """Types lines, of which an exception is a key; returns whether all went well, the statements and the prompts."""

    def run(*lines: str | type[BaseException], interactive: bool = True) -> tuple[bool, list[str], list[str]]:
        typed, prompts, shown = iter(lines), [], []

        def read(prompt: str) -> str:
            prompts.append(prompt)
            line = next(typed, EOFError)
            if isinstance(line, str):
                return line
            raise line

        def show(statement: str) -> None:
            shown.append(statement)
            if statement == "interrupt":
                raise KeyboardInterrupt
            if statement == "fail":
                raise Unavailable("it failed")

        talking = Conversation(session, read, show, interactive=interactive, display=display)
        return talking.run(), shown, prompts

    return run


def test_a_statement_goes_on_until_its_semicolon(talk: Talk) -> None:
    well, shown, prompts = talk("SELECT 1,", "';", "' FROM x; SELECT", "2 ;; -- end", "")
    assert (well, shown) == (True, ["SELECT 1,\n';\n' FROM x", "SELECT\n2"])
    assert prompts == ["lake=> ", "    -> ", "    -> ", "    -> ", "lake=> ", "lake=> "]


def test_errors_do_not_end_a_talk(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    well, shown, _ = talk("fail; SELECT 1;", "\\nothing", "SELECT 2;", "\\q", "SELECT 3;")
    assert (well, shown) == (True, ["fail", "SELECT 1", "SELECT 2"])
    printed = capsys.readouterr().err
    assert "error[unavailable]: it failed" in printed
    assert "error[no-command]" in printed


def test_an_error_ends_what_is_piped(talk: Talk) -> None:
    assert talk("SELECT 1;", "fail;", "SELECT 2;", interactive=False)[:2] == (False, ["SELECT 1", "fail"])
    assert talk("\\nothing", "SELECT 2;", interactive=False)[:2] == (False, [])
    assert talk("SELECT 1;", "SELECT", "2", interactive=False)[:2] == (True, ["SELECT 1", "SELECT\n2"])
    assert talk("SELECT 'a", interactive=False)[:2] == (False, [])


def test_ctrl_c_cancels_what_is_typed_or_runs(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    well, shown, _ = talk("SELECT 'a", KeyboardInterrupt, "interrupt;", "SELECT 2;")
    assert (well, shown) == (True, ["interrupt", "SELECT 2"])
    assert "the statement was cancelled" in capsys.readouterr().err
    for lines in (["interrupt;", "SELECT 2;"], [KeyboardInterrupt], ["interrupt"]):
        with pytest.raises(KeyboardInterrupt):
            talk(*lines, interactive=False)


def test_what_is_typed_last_is_dropped_by_ctrl_d(talk: Talk) -> None:
    assert talk("DELETE FROM x")[:2] == (True, [])


def test_commands_describe_the_catalog(
    talk: Talk, session: Session, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = (
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true},{"name":"l","type":{"type":"array",'
        '"elementType":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[{"name":"a",'
        '"type":"integer"}]}}}}]}'
    )
    store.create_view("shop.v", "SELECT id FROM orders", columns=columns)
    store.create_database("other")
    assert talk("\\dn", "\\d", "\\d shop.orders", "\\d lake.shop.v;", "\\?")[0]
    out, err = capsys.readouterr()
    words = [line.split() for line in out.splitlines()]
    assert words[:2] == [["other"], ["shop"]]
    assert ["shop", "orders", "table"] in words
    assert ["shop", "v", "view"] in words
    assert ["id", "BIGINT", "not", "null", "key"] in words
    assert "ARRAY<MAP<STRING, STRUCT<a: INT>>>" in out
    assert "view shop.v: SELECT id FROM orders" in err
    session.database = "other"
    talk("\\d", "\\d none")
    assert capsys.readouterr().err.count("error[table-not-found]") == 1


def test_statements_are_timed_on_demand(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    talk("SELECT 1;", "\\timing", "SELECT 2;", "\\timing", "SELECT 3;")
    assert len([line for line in capsys.readouterr().err.splitlines() if line.endswith(" s")]) == 1


def test_the_display_is_changed_on_demand(talk: Talk, display: Display, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for command in ("\\x", "\\x", "\\x auto", "\\x;", "\\x on", "\\x sometimes"):
        talk(command)
        seen.append(str(display.expanded))
    assert seen == ["off", "on", "auto", "off", "on", "on"]
    assert capsys.readouterr().err.count("error[no-command]") == 1


def test_a_pipe_is_read_without_prompts(run: Run, session: Session) -> None:
    done = run("sql", stdin="USE shop;\nSELECT id,\nstatus FROM orders;\n\\dn\nSELECT count(*) FROM orders")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["id  status", " 1  OPEN", "shop", "count(1)", "       1"]
    assert run("sql", stdin="SELECT * FROM shop.none;\nSELECT 1;").exit_code == 1


NAMES = Names(
    "lake", "shop", {"shop": ["orders", "my table"], "other": ["odds"]}, {"shop.orders": ["id", "status"]}.__getitem__
)


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("sel", "sel", ["select"]),
        ("SEL", "SEL", ["SELECT"]),
        ("ord", "SELECT * FROM ord", ["orders", "order"]),
        ("od", "SELECT * FROM od", []),
        ("other.", "SELECT * FROM other.", ["other.odds"]),
        ("lake.sh", "SELECT * FROM lake.sh", ["lake.shop.orders", "lake.shop.`my table`"]),
        ("st", "SELECT * FROM shop.orders WHERE st", ["status", "stream"]),
        ("STA", "SELECT * FROM `orders` WHERE STA", ["status"]),
        ("st", "SELECT 1 WHERE st", ["stream"]),
        ("o.s", "SELECT o.s FROM shop.orders AS o", ["o.status"]),
        ("o.s", "SELECT * FROM `orders` o WHERE o.s", ["o.status"]),
        ("orders.", "SELECT * FROM orders WHERE orders.", ["orders.id", "orders.status"]),
        ("where.", "SELECT * FROM orders WHERE where.", []),
        ("\\d", "\\d", ["\\d", "\\dn"]),
    ],
)
def test_words_are_completed(word: str, text: str, found: list[str]) -> None:
    assert completions(word, text, NAMES) == found


def test_tables_of_earlier_lines_have_columns_to_complete(
    session: Session, state: Path, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    readline = pytest.importorskip("readline")
    found: list[str | None] = []
    typed = ["SELECT id FROM shop.orders", "WHERE st", "\\q"]

    def typing(_: str) -> str:
        if typed[0].startswith("WHERE"):
            found.append(readline.get_completer()("st", 0))
        return typed.pop(0)

    monkeypatch.setattr("builtins.input", typing)
    with terminal(session, lambda: talking.typed) as read:
        talking = Conversation(session, read, lambda _: None, interactive=True, display=display)
        with pytest.raises(IndexError):
            talking.run()
    assert found == ["status"]


def test_completion_asks_the_catalog(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = completer(session, lambda: "SELECT sta FROM shop.orders")
    assert (complete("sta", 0), complete("sta", 1)) == ("status", None)
    monkeypatch.setattr(session.store, "list_databases", lambda: (_ for _ in ()).throw(Unavailable("gone")))
    assert complete("sta", 0) is None


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path / "tablestore" / "sql_history"


def test_what_was_typed_is_remembered_without_the_end(
    session: Session, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readline = pytest.importorskip("readline")
    typed = ["SELECT 1;", "SELECT 1;", "  ", "\\q"]
    monkeypatch.setattr("builtins.input", lambda _: typed.pop(0))
    with terminal(session, str) as read:
        assert [read("lake=> ") for _ in range(4)] == ["SELECT 1;", "SELECT 1;", "  ", "\\q"]
    assert state.read_text() == "SELECT 1;\n"
    with terminal(session, str):
        assert readline.get_history_item(readline.get_current_history_length()) == "SELECT 1;"
    assert readline.get_completer() is None

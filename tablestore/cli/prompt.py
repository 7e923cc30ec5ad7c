r"""The prompt of ``tablestore sql``: statements over several lines, and commands that begin with a backslash."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filestore.errors import InvalidRequest, TableStoreError
from tablestore.cli.layout import Expanded
from tablestore.cli.output import complain, note, print_lines, print_table

if TYPE_CHECKING:
    from tablestore.cli.results import Display
    from tablestore.shell.completion import Names
    from tablestore.shell.listing import Listing
    from tablestore.shell.session import Session

__all__ = ["Conversation", "Read", "completer", "piped", "terminal"]

Read = Callable[[str], str]
"""Asks for a line with a prompt. EOFError: there are no more; KeyboardInterrupt: the user cancels what he has typed."""

_HELP = (
    "\\d          lists tables and views of the current database, or of all",
    "\\d NAME     describes a table or a view",
    "\\dn         lists databases",
    "\\x [WHEN]   prints each value on a line of its own: on, off, or auto, if rows are too wide for the screen",
    "\\timing     prints how long statements take, or stops that",
    "\\restart    ends Spark, with its settings and temporary views; it starts again when it is needed",
    "\\q          ends, as Ctrl-D does",
    "A statement ends with a semicolon. Ctrl-C cancels what is typed, or the statement that runs.",
)
_DISPLAYS = {
    Expanded.OFF: "rows are printed as a table",
    Expanded.ON: "each value is printed on a line of its own",
    Expanded.AUTO: "each value is printed on a line of its own if rows are too wide for the screen",
}
_LONGEST_HISTORY = 10_000


class Conversation:
    """Reads statements line by line, and runs them.

    Args:
        session: Runs them.
        read: Asks for a line.
        show: Runs a statement and prints its result.
        interactive: Whether a person reads the prompts; else the first error ends the conversation.
        display: How results are printed, which commands change.

    Attributes:
        typed: The lines of the statement that is not complete yet.
    """

    def __init__(
        self, session: Session, read: Read, show: Callable[[str], None], *, interactive: bool, display: Display
    ) -> None:
        self._session = session
        self._read = read
        self._show = show
        self._interactive = interactive
        self._display = display
        self._timing = False
        self.typed = ""

    def run(self) -> bool:
        """Talks until the user ends it. Returns whether nothing failed that ended it.

        Raises:
            KeyboardInterrupt: Ctrl-C, if no person reads the prompts.
        """
        if self._interactive:
            note("\\? lists commands; a statement ends with a semicolon")
        while True:
            try:
                line = self._read(self._prompt(bool(self.typed)))
            except EOFError:
                return self._end(self.typed)
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                self.typed = ""
                note("")
                continue
            command = line.strip()
            if not self.typed and command.startswith("\\"):
                if command == "\\q":
                    return True
                if not self._tried(lambda command=command: self._command(command)):  # type: ignore[misc]
                    return False
                continue
            left = self._take(f"{self.typed}{line}\n")
            if left is None:
                return False
            self.typed = left

    def _prompt(self, continued: bool) -> str:
        if not self._interactive:
            return ""
        place = self._session.database or self._session.catalog
        return f"{' ' * len(place)}-> " if continued else f"{place}=> "

    def _take(self, typed: str) -> str | None:
        """Runs the statements that are complete, and returns what follows them; None if the conversation ends."""
        from tablestore.shell.statements import split

        try:
            found = split(typed)
        except InvalidRequest:
            return typed  # a quote is still open
        if not all(self._statement(statement) for statement in found.statements):
            return None
        return f"{found.rest}\n" if found.rest else ""

    def _end(self, typed: str) -> bool:
        """Runs a script's last statement, which needs no semicolon; for a person it cancels what is typed."""
        if self._interactive:
            print_lines([""])
            return True
        return not typed or self._tried(lambda: self._rest(typed))

    def _rest(self, typed: str) -> None:
        from tablestore.shell.statements import split

        for statement in split(typed).all:
            self._show(statement)

    def _statement(self, statement: str) -> bool:
        begun = time.perf_counter()
        going = self._tried(lambda: self._show(statement))
        if self._timing:
            note(f"{time.perf_counter() - begun:.3f} s")
        return going

    def _tried(self, work: Callable[[], None]) -> bool:
        """Does something; an error is printed. Returns whether the conversation goes on."""
        try:
            work()
        except TableStoreError as error:
            complain(error)
            return self._interactive
        except KeyboardInterrupt:
            note("the statement was cancelled")
            if not self._interactive:
                raise
            self._end_left_tasks()
        return True

    def _end_left_tasks(self) -> None:
        try:
            self._session.end_left_tasks()
        except TableStoreError as error:
            complain(error)
        except KeyboardInterrupt:
            note("the tasks of the statement may still run")

    def _command(self, command: str) -> None:
        from tablestore.shell.listing import columns_of, relations

        words = command.removesuffix(";").split()
        match words:
            case ["\\?"]:
                print_lines(_HELP)
            case ["\\dn"]:
                print_lines(self._session.store.list_databases())
            case ["\\d"]:
                _print(relations(self._session.store, self._session.database))
            case ["\\d", name]:
                _print(columns_of(self._session.store, self._qualified(name)))
            case ["\\restart"]:
                self._session.restart()
            case ["\\x", *when] if when in ([], ["on"], ["off"], ["auto"]):
                self._display.expanded = Expanded(when[0]) if when else self._display.expanded.toggled
                note(_DISPLAYS[self._display.expanded])
            case ["\\timing"]:
                self._timing = not self._timing
                note("statements are timed" if self._timing else "statements are not timed")
            case _:
                raise InvalidRequest(
                    f"there is no command {command}; \\? lists those that there are", code="no-command"
                )

    def _qualified(self, name: str) -> str:
        name = name.replace("`", "").removeprefix(f"{self._session.catalog}.")
        return name if "." in name or self._session.database is None else f"{self._session.database}.{name}"


def _print(listing: Listing) -> None:
    if listing.title:
        note(listing.title)
    print_table(listing.header, listing.rows)


@contextmanager
def piped() -> Iterator[Read]:
    """Reads standard input, which is no terminal."""

    def read(_: str) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    yield read


@contextmanager
def terminal(session: Session, typed: Callable[[], str]) -> Iterator[Read]:
    """Reads lines with Python's readline: with history, which is kept in a file of the user, and completion by Tab.

    Args:
        session: Has the catalog.
        typed: Returns the earlier lines of the statement, whose tables have columns to complete.
    """
    try:
        import readline
    except ImportError:  # Python was built without it
        yield input
        return
    from tablestore.shell.completion import DELIMITERS

    history = _history()
    try:
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.read_history_file(history)
    except OSError:
        readline.clear_history()  # there is none yet, or it cannot be read
    readline.set_history_length(_LONGEST_HISTORY)
    readline.set_completer_delims(DELIMITERS)
    readline.set_completer(completer(session, lambda: f"{typed()}{readline.get_line_buffer()}"))
    libedit = "libedit" in (readline.__doc__ or "")  # what macOS has instead, with other words
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    readline.set_auto_history(False)

    def read(prompt: str) -> str:
        line = input(prompt)
        last = readline.get_history_item(readline.get_current_history_length())
        if line.strip() not in ("", "\\q") and line != last:
            readline.add_history(line)
        return line

    try:
        yield read
    finally:
        readline.set_auto_history(True)
        readline.set_completer(None)
        try:
            readline.write_history_file(history)
        except OSError as error:
            note(f"the history was not kept: {error}")


def _history() -> Path:
    """Returns the path of the history, which is in the user's folder for state."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "tablestore" / "sql_history"


def completer(session: Session, line: Callable[[], str]) -> Callable[[str, int], str | None]:
    """Returns what readline asks for the words that a word may become, one after the other.

    Args:
        session: Has the catalog.
        line: Returns the statement as far as it is typed.
    """
    from tablestore.shell.completion import completions

    found: list[str] = []

    def complete(word: str, number: int) -> str | None:
        if number == 0:
            try:
                found[:] = completions(word, line(), _names(session))
            except TableStoreError:
                found.clear()  # the catalog does not answer, which the next statement will say
        return found[number] if number < len(found) else None

    return complete


def _names(session: Session) -> Names:
    from tablestore.shell.completion import Names

    store = session.store
    tables = {name: [*store.list_tables(name), *store.list_views(name)] for name in store.list_databases()}
    return Names(session.catalog, session.database, tables, lambda name: _columns(session, name))


def _columns(session: Session, name: str) -> list[str]:
    from tablestore.shell.listing import columns_of

    return [row[0] for row in columns_of(session.store, name).rows]

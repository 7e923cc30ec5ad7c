"""The command ``sql``: statements, scripts, and a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from filestore.errors import TableStoreError
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Format, OutputFormat, Token
from tablestore.cli.opening import open_store, spark_settings
from tablestore.cli.output import complain, note, print_lines, print_table
from tablestore.cli.settings import options_of
from tablestore.shell.engines import Engine

if TYPE_CHECKING:
    import pyarrow as pa

    from tablestore.shell.results import Result
    from tablestore.shell.session import Session
    from tablestore.shell.spark_engine import SparkEngine

__all__ = ["sql"]

_ROWS_SHOWN = 100
_ROWS_ALIGNED = 1000
"""The number of rows that are in memory and aligned with each other."""

_Place = Annotated[
    str,
    typer.Option(
        "--catalog",
        "-c",
        "--warehouse",
        "-w",
        envvar="TABLESTORE_CATALOG",
        metavar="URL|PATH",
        help="A catalog service's URL, or a warehouse's path or URL.",
    ),
]

_Statements = Annotated[
    str | None, typer.Argument(metavar="STATEMENT[;…]", help="Default: a prompt, or standard input of a pipe.")
]
_File = Annotated[
    typer.FileText | None,
    typer.Option("--file", encoding="utf-8", metavar="FILE", help="A script; - is standard input."),
]
_Rows = Annotated[
    int | None,
    typer.Option("--rows", "-n", min=0, help=f"Print at most so many; default: {_ROWS_SHOWN} as a table, else all."),
]
_Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]


def sql(  # noqa: PLR0913  # a command's options are its arguments
    statements: _Statements = None,
    file: _File = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The catalog's name in statements.")] = "lake",
    database: Annotated[
        str | None, typer.Option("--database", "-d", metavar="DB", help="The database of names without one.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option("--engine", help="What runs statements; auto: polars if it can do so as Spark would.")
    ] = Engine.AUTO,
    rows: _Rows = None,
    conf: _Conf = None,
    s3: Annotated[
        bool, typer.Option("--s3", help="The tables of a catalog service are in S3, and Spark has to read them there.")
    ] = False,
    output: OutputFormat = Format.TABLE,
    catalog: _Place = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Run SQL: statements, a script, or what is typed at a prompt. The first error ends it, with exit code 1.

    [dim]tablestore sql "SELECT status, count(*) AS orders FROM shop.orders GROUP BY status"
    tablestore sql --file script.sql --format json[/dim]

    Plain SELECTs over one table need no Spark; for all else Spark starts, which takes some seconds.
    """
    if statements is not None and file is not None:
        raise typer.BadParameter("pass statements or a file", param_hint="--file")
    if rows is None and output is Format.TABLE:
        rows = _ROWS_SHOWN
    # imported here because Arrow, polars and sqlglot load slowly, and `--help` should not wait for them
    from tablestore.shell.session import Session

    settings = options_of(conf or (), "--conf")

    def start_spark(current: str | None) -> SparkEngine:
        from tablestore.shell.spark_engine import SparkEngine, SparkPlace

        return SparkEngine(SparkPlace(name, conf=settings, **spark_settings(catalog, token, s3=s3)), current)

    with (
        open_store(catalog, token) as store,
        Session(
            store,
            start_spark,
            catalog=name,
            database=database,
            engine=engine,
            plain=not any(setting.startswith("spark.sql.") for setting in settings),
            starting=lambda reason: note(f"Spark starts: {reason}"),
        ) as session,
    ):
        script = statements if file is None else file.read()
        if script is None:
            _converse(session, output, rows)
        else:
            _run_all(session, script, lambda result: _show(result, output, rows), rows)


def _run_all(session: Session, script: str, show: Callable[[Result], None], rows: int | None) -> None:
    from tablestore.shell.statements import split

    found = split(script).all
    for number, statement in enumerate(found, 1):
        try:
            show(session.run(statement, _wanted(rows)))
        except TableStoreError as error:
            if len(found) == 1:
                raise
            complain(error, of=f"statement {number} of {len(found)}")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            note("the statement was cancelled")
            raise typer.Exit(130) from None


def _converse(session: Session, output: Format, rows: int | None) -> None:
    from tablestore.cli.prompt import Conversation, piped, terminal

    interactive = sys.stdin.isatty()
    with terminal(session) if interactive else piped() as read:
        talk = Conversation(
            session,
            read,
            lambda statement: _show(session.run(statement, _wanted(rows)), output, rows),
            interactive=interactive,
        )
        try:
            went_well = talk.run()
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        if not went_well:
            raise typer.Exit(1)


def _wanted(rows: int | None) -> int | None:
    """Returns one row more than is printed, so that it is known whether there are more."""
    return None if rows is None else rows + 1


def _show(result: Result, output: Format, rows: int | None) -> None:
    """Prints a result, and says on standard error which engine returned it."""
    if result.schema is None:
        note(f"{result.engine}: done")
        return
    printed, more = 0, False
    for part in _parts(result, rows):
        more = rows is not None and printed + part.num_rows > rows
        part = part.slice(0, rows - printed) if rows is not None else part
        if output is Format.JSON or part.num_rows or not printed:
            _print(part, output)
        printed += part.num_rows
    counted = f"{printed:,} row" if printed == 1 else f"{printed:,} rows"
    note(f"{result.engine}: {counted}; there are more, which --rows prints" if more else f"{result.engine}: {counted}")


def _parts(result: Result, rows: int | None) -> Iterator[pa.Table]:
    """Yields the rows in parts of `_ROWS_ALIGNED`, or an empty part without rows; it reads one row more than `rows`."""
    import pyarrow as pa

    assert result.schema is not None
    waiting: list[pa.Table] = []
    held = passed = 0
    for batch in result.batches:
        for start in range(0, batch.num_rows, _ROWS_ALIGNED):
            waiting.append(batch.slice(start, _ROWS_ALIGNED))
            held += waiting[-1].num_rows
            if held >= _ROWS_ALIGNED:
                yield pa.concat_tables(waiting)
                passed, held, waiting = passed + held, 0, []
                if rows is not None and passed > rows:
                    return
    if waiting or not passed:
        yield pa.concat_tables([result.schema.empty_table(), *waiting])


def _print(rows: pa.Table, output: Format) -> None:
    from tablestore.cli.text import cells, json_lines, numbers

    titles = rows.column_names
    named = rows.rename_columns(_distinct(titles))
    if output is Format.JSON:
        print_lines(json_lines(named))
    else:
        print_table(titles, zip(*cells(named), strict=True), right=numbers(rows))


def _distinct(names: Sequence[str]) -> list[str]:
    """Makes of equal names different ones: Spark's results may have two columns with one name."""
    found: list[str] = []
    for name in names:
        number, free = 2, name
        while free in found:
            number, free = number + 1, f"{name}_{number}"
        found.append(free)
    return found

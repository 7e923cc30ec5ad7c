"""The command ``sql``: statements, scripts, and a prompt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from filestore.errors import TableStoreError
from tablestore.cli import completing
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Format, OutputFormat, Token
from tablestore.cli.layout import Expanded
from tablestore.cli.opening import open_store, spark_settings
from tablestore.cli.output import complain, note
from tablestore.cli.results import Display
from tablestore.cli.settings import options_of
from tablestore.shell.engines import Engine

if TYPE_CHECKING:
    from tablestore.shell.session import Session
    from tablestore.shell.spark_engine import SparkEngine

__all__ = ["sql"]

_ROWS_SHOWN = 100

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
_Expanded = Annotated[
    Expanded,
    typer.Option(
        "--expanded", "-x", help="Each value on a line of its own; auto: on a screen that is too narrow for the rows."
    ),
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
        str | None,
        typer.Option(
            "--database",
            "-d",
            metavar="DB",
            help="The database of names without one.",
            autocompletion=completing.databases,
        ),
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
    expanded: _Expanded = Expanded.AUTO,
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
            say=note,
        ) as session,
    ):
        script = statements if file is None else file.read()
        display = Display(output, rows, expanded)
        if script is None:
            _converse(session, display)
        else:
            _run_all(session, script, display)


def _run_all(session: Session, script: str, display: Display) -> None:
    from tablestore.shell.statements import split

    found = split(script).all
    for number, statement in enumerate(found, 1):
        try:
            display.show(session.run(statement, display.wanted))
        except TableStoreError as error:
            if len(found) == 1:
                raise
            complain(error, of=f"statement {number} of {len(found)}")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            note("the statement was cancelled")
            raise typer.Exit(130) from None


def _converse(session: Session, display: Display) -> None:
    from tablestore.cli.prompt import Conversation, piped, terminal

    interactive = sys.stdin.isatty()
    with terminal(session, lambda: talk.typed) if interactive else piped() as read:
        talk = Conversation(
            session,
            read,
            lambda statement: display.show(session.run(statement, display.wanted)),
            interactive=interactive,
            display=display,
        )
        try:
            went_well = talk.run()
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        if not went_well:
            raise typer.Exit(1)

"""Arguments and options that several commands share."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from filestore.process_log import LogFormat
from tablestore.cli import completing
from tablestore.cli.secrets import secret_option
from tablestore.incoming.files.kinds import FileKind
from tablestore.incoming.moments import parsed_moment

__all__ = [
    "DEFAULT_WAREHOUSE",
    "Brokers",
    "Catalog",
    "Columns",
    "Commits",
    "Database",
    "Defaults",
    "Delimiter",
    "Encoding",
    "Format",
    "InputFormat",
    "LogFormatOption",
    "LogLevel",
    "LogLevelOption",
    "Null",
    "OutputFormat",
    "StorageOptions",
    "TableName",
    "TimestampFormat",
    "Token",
    "Yes",
    "moment",
]

DEFAULT_WAREHOUSE = "./warehouse"


class Format(StrEnum):
    """The format in which rows are printed."""

    TABLE = "table"
    JSON = "json"


class LogLevel(StrEnum):
    """The least level of the records that a process logs."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def moment(text: str) -> datetime:
    """Parses a point in time from ISO 8601; without a zone it is in UTC."""
    try:
        return parsed_moment(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time: write it as 2026-01-31T12:00:00Z") from error


Catalog = Annotated[
    str,
    typer.Option(
        "--catalog",
        "-c",
        envvar="TABLESTORE_CATALOG",
        metavar="URL|PATH",
        help="A catalog service's URL, or a warehouse's path or URL.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TABLESTORE_TOKEN",
        callback=secret_option,
        help="The token of the catalog service, if it requires one; or a file with it in $TABLESTORE_TOKEN_FILE.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="TABLESTORE_DATABASE",
        callback=secret_option,
        metavar="URL",
        help="The catalog's database, or a file with its URL in $TABLESTORE_DATABASE_FILE; default: SQLite in the "
        "warehouse, if that is a folder.",
    ),
]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        envvar="TABLESTORE_BROKERS",
        metavar="HOST:PORT,…",
        help="Kafka's brokers for logs of tables that name none; a table in S3 then has its log in Kafka by default.",
    ),
]
StorageOptions = Annotated[
    str | None,
    typer.Option(
        "--storage",
        envvar="TABLESTORE_STORAGE",
        metavar="NAME=VALUE;…",
        help="How to reach a warehouse in S3: 'endpoint=http://127.0.0.1:9000;region=eu-west-1'. No secrets.",
    ),
]
Commits = Annotated[
    str | None,
    typer.Option(
        "--commits",
        envvar="TABLESTORE_COMMITS",
        metavar="store|catalog",
        help="What keeps commits of a new warehouse apart: catalog if its store has no conditional writes.",
    ),
]
Defaults = Annotated[
    str | None,
    typer.Option(
        "--defaults",
        envvar="TABLESTORE_DEFAULTS",
        metavar="NAME=VALUE;…",
        help="Default options of tables that are created: 'table-storage.bucket=4'.",
    ),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level", envvar="TABLESTORE_LOG_LEVEL", help="What the service logs; info has a line for each request."
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="TABLESTORE_LOG_FORMAT",
        help="Lines for people on standard error, or JSON lines on standard output.",
    ),
]
TableName = Annotated[
    str,
    typer.Argument(metavar="DB.TABLE", help="The table, with its database.", autocompletion=completing.tables),
]
OutputFormat = Annotated[
    Format, typer.Option("--format", "-f", help="A table for people, or JSON for programs: an object on each line.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B,…",
        help="Only these columns, in this order.",
        autocompletion=completing.columns,
    ),
]
InputFormat = Annotated[
    FileKind | None,
    typer.Option("--input-format", help="What a file is; default: by its name, or else by its first bytes."),
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="CHAR", help="Between the fields of CSV; default: by the first lines."),
]
Null = Annotated[str | None, typer.Option("--null", metavar="TEXT", help="How CSV spells nulls; default: as nothing.")]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Of CSV, such as latin-1; default: UTF-8, or by its first bytes.")
]
TimestampFormat = Annotated[
    list[str] | None,
    typer.Option(
        "--timestamp-format",
        metavar="FORMAT",
        help="How CSV spells days or times besides 2015-01-31 and 2015/01/31, such as '%d.%m.%Y'; may be repeated.",
    ),
]

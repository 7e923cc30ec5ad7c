"""The command ``load``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tablestore.cli.arguments import (
    DEFAULT_WAREHOUSE,
    Catalog,
    Defaults,
    Delimiter,
    Encoding,
    Format,
    InputFormat,
    Null,
    OutputFormat,
    TimestampFormat,
    Token,
    Yes,
)
from tablestore.cli.opening import open_store
from tablestore.cli.output import confirm, note
from tablestore.cli.progress import doing, observed
from tablestore.cli.rows import report
from tablestore.cli.settings import defaults_of, names_of, options_of

__all__ = ["load"]


def load(  # noqa: PLR0913  # a command's options are its arguments
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE… DB.TABLE", help="Files of CSV, JSON or Parquet, or patterns, or -; and the table."
        ),
    ],
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="A,B,…", help="The primary key of a new table.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", metavar="A,B,…", help="The partition columns of a new table.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="COLUMNS", help="Columns with other types: 'zip STRING, price DECIMAL(9,2)'."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of a new table; may be repeated."),
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Free text.")] = None,
    yes: Yes = False,
    input_format: InputFormat = None,
    delimiter: Delimiter = None,
    null: Null = None,
    encoding: Encoding = None,
    timestamp_format: TimestampFormat = None,
    defaults: Defaults = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Write files into a table in one commit. A table that does not exist gets their columns, and is created.

    The columns of Parquet are taken as they are; those of CSV and JSON are found by all values, shown, and at a
    terminal you are asked. If the table exists, its columns hold, and with a primary key the rows are upserts.

    [dim]tablestore load sales.csv shop.sales --key id
    tablestore load 'sales/*.parquet' shop.sales --key id --partition-by day[/dim]
    """
    if len(given) < 2:
        raise typer.BadParameter("name at least one file, and the table behind the files", param_hint="FILE… DB.TABLE")
    *files, name = given
    from tablestore.cli.files import bad_files, csv_style_of, row_files  # loads polars
    from tablestore.loading import NewTable, plan_load

    new = NewTable(names_of(key), names_of(partition_by), options_of(option or ()), comment, columns)
    style = csv_style_of(delimiter, null, encoding, timestamp_format)
    with (
        bad_files(),
        row_files([Path(file) for file in files], style, input_format) as found,
        open_store(catalog, token, make=True, defaults=defaults_of(defaults)) as store,
    ):
        doing("reading the columns")
        plan = plan_load(store, name, found, new, observed)
        if plan.table is None:
            for line in (f"{name} is new, with these columns:", *plan.column_lines(), *plan.found.remarks):
                note(line)
            if not yes:
                confirm(f"Create {name} and write {_counted(len(found))}?", only_at_a_terminal=True)
        doing(f"writing {_counted(len(found))}")
        report(output, name, plan.run(observed)[1])


def _counted(files: int) -> str:
    return "the file" if files == 1 else f"{files:,} files"

"""The command ``alter``."""

from __future__ import annotations

from typing import Annotated

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, TableName, Token
from tablestore.cli.opening import open_table
from tablestore.cli.output import confirm, done, note

__all__ = ["alter"]


def alter(
    name: TableName,
    changes: Annotated[
        list[str], typer.Argument(metavar="CHANGE…", help="SQL clauses, each as one argument; applied in their order.")
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a change that some readers do not support.")
    ] = False,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Change a table's columns, comments and options: all of the changes in one commit, or none.

    [dim]tablestore alter shop.orders "ADD COLUMN note STRING AFTER id" "ALTER COLUMN amount TYPE DECIMAL(12,2)"
    tablestore alter shop.orders "RENAME COLUMN note TO remark" "DROP COLUMN status"
    tablestore alter shop.orders "ALTER COLUMN id FIRST" "ALTER COLUMN amount DROP NOT NULL"
    tablestore alter shop.orders "COMMENT 'one row an order'" "ALTER COLUMN id COMMENT 'of the order'"
    tablestore alter shop.orders "SET target-file-size = 64 mb" "UNSET schema.evolution-mode"[/dim]

    Dropping, renaming and widening rewrite all files; with schema.evolution-mode = metadata they change only
    metadata, and readers that do not support the necessary Delta features cannot read the table any more.
    """
    with open_table(name, catalog, token) as table:
        plan = table.plan_alter(*changes)
        for reader in plan.readers:
            note(reader)
        if plan.readers and not yes:
            confirm("Continue?")
        snapshot = table.alter(*changes)
    rewritten = snapshot.metrics.get("rows_rewritten", 0)
    text = f"version {snapshot.version}" + (f" ({rewritten:,} rows rewritten)" if rewritten else "")
    done(output, text, table=name, version=snapshot.version, rows_rewritten=rewritten)

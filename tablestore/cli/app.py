"""The commands, in the order of ``--help``, and how an error ends one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from filestore.ambient import system_ambient
from filestore.errors import TableStoreError
from tablestore.cli import (
    alter,
    care,
    catalog,
    compactor,
    describe,
    follow,
    ingest,
    life,
    load,
    partitions,
    refresh,
    rows,
    show,
    spark,
    sql,
    start,
)
from tablestore.cli.output import complain
from tablestore.cli.progress import shown

__all__ = ["app", "main"]


class _InOrder(TyperGroup):
    """Lists commands in the order of their registration."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


_PLAIN = {
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "float_parsing": "{input!r} is not a number",
    "greater_than_equal": "{input} is too small: the smallest value is {ge}",
    "less_than_equal": "{input} is too large: the largest value is {le}",
    "value_error": "{error}",
}
"""The sentences for wrong values, by the kinds of errors of pydantic, with which typer checks values."""


_LASTING = frozenset({"compactor", "demo", "follow", "serve", "sql"})
"""Commands that go on until somebody ends them, or show themselves what they do."""


class _Command(TyperCommand):
    """Prints an error that the product raises on purpose as one line, and exits with 1; usage errors exit with 2.

    A command that ends by itself shows its progress, unless with ``--quiet``.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except typer.BadParameter as error:
            error.message = _in_plain_words(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        words = [*ctx.command_path.split()[1:], str(ctx.params.get("name") or "")]
        silent = ctx.params.get("quiet") or words[0] in _LASTING or ctx.params.get("follow")
        try:
            with nullcontext() if silent else shown(" ".join(words).strip(), system_ambient().monotonic_s):
                return super().invoke(ctx)
        except TableStoreError as error:
            complain(error, options={p.name: p.opts[0] for p in self.params if p.name and p.opts[0].startswith("--")})
            raise typer.Exit(1) from error


_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def _with_quiet(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with the option ``--quiet``, which `_Command` reads, if its progress is shown."""
    if name in _LASTING:
        return command

    @wraps(command)
    def run(*, quiet: bool, **given: Any) -> None:
        command(**given)

    declared = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Quiet)
    run.__signature__ = declared.replace(parameters=[*declared.parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = command.__annotations__ | {"quiet": _Quiet}
    return run


def _in_plain_words(error: typer.BadParameter) -> str:
    found = error.__cause__.errors() if isinstance(error.__cause__, ValidationError) else []
    if not found or found[0]["type"] not in _PLAIN:
        return error.message
    return _PLAIN[found[0]["type"]].format(input=found[0]["input"], **found[0].get("ctx", {}))


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Start": {"demo": start.demo, "serve": start.serve},
    "Databases and tables": {
        "databases": catalog.databases,
        "tables": catalog.tables,
        "views": catalog.views,
        "create": catalog.create,
        "rename": catalog.rename,
        "register": catalog.register,
        "drop": catalog.drop,
        "alter": alter.alter,
        "describe": describe.describe,
        "snapshots": describe.snapshots,
        "show": show.show,
    },
    "Rows": {
        "load": load.load,
        "sql": sql.sql,
        "scan": rows.scan,
        "get": rows.get,
        "write": rows.write,
        "follow": follow.follow,
        "ingest": ingest.ingest,
        "refresh": refresh.refresh,
    },
    "Versions": {
        "tags": life.tags,
        "tag": life.tag,
        "rollback": life.rollback,
        "consumers": life.consumers,
    },
    "Care": {
        "doctor": care.doctor,
        "new-log": care.new_log,
        "compact": care.compact,
        "compactor": compactor.compactor,
        "maintain": life.maintain,
        "expire": life.expire,
        "orphans": life.orphans,
    },
    "Spark": {"spark-archive": spark.archive, "spark-settings": spark.settings},
}

_PARTITIONS: dict[str, Callable[..., None]] = {
    "list": partitions.list_partitions,
    "drop": partitions.drop,
    "expire": partitions.expire,
}

for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, cls=_Command, rich_help_panel=_panel)(_with_quiet(_name, _command))

_partitions = typer.Typer(cls=_InOrder, no_args_is_help=True, rich_markup_mode="rich")
for _name, _command in _PARTITIONS.items():
    _partitions.command(_name, cls=_Command)(_with_quiet(_name, _command))
app.add_typer(_partitions, name="partitions", help="List, drop and expire partitions.", rich_help_panel="Care")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tablestore {version('lakehouse-tablestore')}")
        raise typer.Exit


@app.callback()
def _tablestore(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Managed tables with primary keys: plain Delta tables, each with a log of its changes.

    [bold]--catalog[/bold] or $TABLESTORE_CATALOG names the catalog: the URL of a catalog service, or the path of
    a warehouse, which needs no service. To begin, run [bold]tablestore demo[/bold].
    """


def main() -> None:
    """Runs the command line."""
    app(prog_name="tablestore")

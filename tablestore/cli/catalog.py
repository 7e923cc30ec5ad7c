"""The commands ``databases``, ``tables``, ``views``, ``create``, ``rename``, ``register`` and ``drop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from filestore.errors import InvalidRequest, NotFound
from tablestore.cli import completing
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Defaults, Format, OutputFormat, Token, Yes
from tablestore.cli.opening import open_catalog, open_store
from tablestore.cli.output import complain, confirm, done, note, print_json, print_lines
from tablestore.cli.questions import about_drop
from tablestore.cli.settings import defaults_of, names_of, options_of

if TYPE_CHECKING:
    from tablestore.kafka_table import KafkaTable
    from tablestore.store import Store
    from tablestore.table import Table

__all__ = ["create", "databases", "drop", "register", "rename", "tables", "views"]

_Name = Annotated[
    str,
    typer.Argument(
        metavar="DB[.TABLE]", help="A database, or a table with its database.", autocompletion=completing.databases
    ),
]


def databases(catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE) -> None:
    """List the databases."""
    with open_catalog(catalog, token) as opened:
        _print_names(opened.list_databases(), output)


def tables(
    database: Annotated[
        str | None,
        typer.Argument(metavar="DB", help="Only the tables of this database.", autocompletion=completing.databases),
    ] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """List the tables, as DB.TABLE."""
    with open_catalog(catalog, token) as opened:
        _print_qualified(opened.list_databases() if database is None else [database], opened.list_tables, output)


def views(
    database: Annotated[
        str | None,
        typer.Argument(metavar="DB", help="Only the views of this database.", autocompletion=completing.databases),
    ] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """List the views, as DB.VIEW. SQL creates them: [dim]tablestore sql "CREATE VIEW …"[/dim]."""
    with open_catalog(catalog, token) as opened:
        _print_qualified(opened.list_databases() if database is None else [database], opened.list_views, output)


def rename(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DB.NAME", help="A table or a view, with its database.", autocompletion=completing.names
        ),
    ],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="The new name, in the same database.")],
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Give a table or a view another name in its database. Files and log stay where they are.

    [dim]tablestore rename shop.orders purchases[/dim]
    """
    database, _, short = name.partition(".")
    if not short:
        raise InvalidRequest(f"{name!r} is a database, which keeps its name: write DB.TABLE", code="bad-name")
    new = new_name if "." in new_name else f"{database}.{new_name}"
    with open_store(catalog, token) as store:
        if _is_view(store, name):
            store.rename_view(name, new)
        else:
            store.rename_table(name, new)
    done(output, f"{name} is now {new}", name=new, renamed_from=name)


def create(  # noqa: PLR0913  # a command's options are its arguments
    name: _Name,
    schema: Annotated[
        str | None,
        typer.Argument(metavar="COLUMNS", help="The columns of a table: 'id BIGINT, name STRING, day DATE'."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="A,B,…", help="The primary key; with one, writes are upserts."),
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", metavar="A,B,…", help="The partition columns.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="A table option; may be repeated."),
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Free text.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="No error if it exists already.")] = False,
    defaults: Defaults = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Create a database, or a table in one. With [bold]-o connector=…[/bold] the table is a Kafka topic.

    [dim]tablestore create shop
    tablestore create shop.orders 'id BIGINT, status STRING' --key id --option bucket=4[/dim]
    """
    given = (schema, key, partition_by, option, comment)
    if "." not in name and any(given):
        raise InvalidRequest(
            f"{name!r} is a database, which has no columns, key or options: write {name}.TABLE", code="bad-name"
        )
    if "." in name and schema is None:
        raise InvalidRequest(
            f"a table needs columns: tablestore create {name} 'id BIGINT, name STRING'", code="no-columns"
        )
    where = ""
    with open_store(catalog, token, make=True, defaults=defaults_of(defaults)) as store:
        if schema is None:
            store.create_database(name, if_not_exists=if_not_exists)
        else:
            table = store.create_any_table(
                name,
                schema,
                primary_key=names_of(key),
                partition_by=names_of(partition_by),
                options=options_of(option or ()),
                comment=comment,
                if_not_exists=if_not_exists,
            )
            where = _log_of(table)
    # the store does not return whether it existed before
    done(output, (f"{name} exists" if if_not_exists else f"created {name}") + where, name=name)


def _log_of(table: Table | KafkaTable) -> str:
    """Says which log a table has, since that depends on where it is; nothing for a topic."""
    from tablestore.table import Table  # loads what tables need

    if not isinstance(table, Table):
        return ""
    options = table.definition.options
    if options["log.system"] == "kafka":
        return f", with its log in Kafka at {options['log.kafka.bootstrap.servers']}"
    return ", without a log" if options["log.system"] == "none" else ""


def register(
    place: Annotated[
        str | None,
        typer.Argument(metavar="FOLDER", help="The folder of a table or of a database; default: the whole warehouse."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="TABLE", help="Another name than the folder's, for one table.")
    ] = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Enter tables in the catalog whose files are in its warehouse, after its database was lost.

    Keys, options and versions are those of the files, which stay as they are. Tables that the catalog has stay, too.
    """
    with open_store(catalog, token) as store:
        found = store.register(place, name)
    for table in found:
        if table.error is not None:
            complain(table.error, table.location)
            continue
        text = f"{'registered' if table.created else 'there already:'} {table.name} at version {table.version}"
        done(output, text, name=table.name, version=table.version, registered=table.created)
        for text in table.notes:
            note(f"{table.name}: {text}")
    if any(table.error is not None for table in found):
        raise typer.Exit(1)


def drop(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DB[.NAME]", help="A database, or a table or view of one.", autocompletion=completing.names
        ),
    ],
    yes: Yes = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also drop the tables of a database.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="No error if it does not exist.")] = False,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Drop a table with its files and its log, a view, or a database. The topic of a table with a connector stays."""
    with open_store(catalog, token) as store:
        if not yes and (question := about_drop(store, name, cascade=cascade)) is not None:
            confirm(question)
        if "." in name and _is_view(store, name):
            store.drop_view(name, if_exists=if_exists)
        elif "." in name:
            store.drop_table(name, if_exists=if_exists)
        else:
            store.drop_database(name, if_exists=if_exists, cascade=cascade)
    done(output, f"{name} is gone" if if_exists else f"dropped {name}", dropped=name)


def _is_view(store: Store, name: str) -> bool:
    try:
        store.view(name)
    except (InvalidRequest, NotFound):
        return False  # what it is, or that it is nothing, says the next request
    return True


def _print_qualified(databases: list[str], listed: Callable[[str], list[str]], output: Format) -> None:
    """Prints what a list of each database has, with the database's name."""
    _print_names([f"{database}.{name}" for database in databases for name in listed(database)], output)


def _print_names(names: list[str], output: Format) -> None:
    if output is Format.JSON:
        print_json(*({"name": name} for name in names))
    else:
        print_lines(names)

"""``ingest``: a Debezium topic into a table, until it is copied or until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Defaults, Token
from tablestore.cli.catalog import defaults_of, names_of, options_of
from tablestore.cli.follow import interruptible
from tablestore.cli.opening import open_store
from tablestore.cli.output import note

if TYPE_CHECKING:
    from tablestore.ingesting.ingestion import Taken

__all__ = ["ingest"]


def ingest(  # noqa: PLR0913  # a command's options are its arguments
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that Debezium writes as JSON.")],
    into: Annotated[str, typer.Option("--into", metavar="DB.TABLE", help="The table. Made if it is not there.")],
    servers: Annotated[
        str, typer.Option("--servers", "-s", metavar="HOST:PORT,…", help="Kafka's brokers.", envvar="TABLESTORE_KAFKA")
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes; Ctrl-C ends it.")] = False,
    to_topic: Annotated[
        str | None,
        typer.Option("--to-topic", metavar="TOPIC", help="The table is a compacted topic, which is made, too."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="COLUMNS",
            help="The table's columns: if the messages have no schema, or to have only these. Give them each time.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="A,B,…", help="The primary key, if the messages' keys lack it.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="Of the table that is made; may be repeated."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="NAME=VALUE", help="Of the topic: properties.… and scan.…; may be repeated."),
    ] = None,
    defaults: Defaults = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Make a table of a topic that Debezium writes, or go on where it stopped.

    Columns come from the schema in the messages, the primary key from their keys; new columns are added. A managed
    table has each change once.

    [dim]tablestore ingest cdc.shop.orders --into shop.orders --servers localhost:9092 --follow
    tablestore ingest cdc.shop.orders --into shop.latest --servers localhost:9092 --to-topic orders[/dim]
    """
    options = options_of(option or ()) | ({} if to_topic is None else {"connector": "upsert-kafka", "topic": to_topic})
    with open_store(catalog, token, defaults=defaults_of(defaults)) as store:
        ingestion = store.ingest(
            topic,
            into,
            servers=servers,
            columns=columns,
            primary_key=names_of(key),
            options=options,
            source_options=options_of(source or (), "--source"),
        )
        if not follow:
            _tell(ingestion.copy())
            return
        with interruptible() as stopped:
            note(f"{topic} goes into {into}; Ctrl-C ends it")
            for taken in ingestion.follow(stopped):
                _tell(taken)


def _tell(taken: Taken) -> None:
    note(f"{taken.rows:,} changes" + ("" if taken.version is None else f", version {taken.version}"))

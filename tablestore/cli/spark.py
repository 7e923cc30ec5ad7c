"""The commands ``spark-archive`` and ``spark-settings``, which prepare programs for a cluster."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from filestore.errors import Unavailable
from tablestore.cli.arguments import Format, OutputFormat, StorageOptions
from tablestore.cli.output import done, print_json, print_lines
from tablestore.cli.settings import options_of, storage_options

__all__ = ["archive", "settings"]


def archive(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Such as packages.tar.gz, or, faster, packages.tar.")],
    packages: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="Another installed package for your tasks; may be repeated."),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Make an archive of what Spark's executors need, for hosts that lack this package. They need the same Python."""
    # imported here because it reads what is installed, and `--help` should not wait for it
    from tablestore.spark.archive import spark_archive

    info = spark_archive(path, packages or ())
    text = f"{path}: {len(info.packages)} packages and Tablestore {info.version}, for Python {info.python}"
    done(output, text, file=str(path), packages=len(info.packages), version=info.version, python=info.python)


def settings(
    packages: Annotated[
        Path | None, typer.Option("--archive", metavar="PATH", help="What `tablestore spark-archive` made.")
    ] = None,
    s3: Annotated[
        bool, typer.Option("--s3", help="Tables are in S3, and the environment says how to reach it.")
    ] = False,
    storage: StorageOptions = None,
    catalogs: Annotated[
        list[str] | None,
        typer.Option(
            "--sql", metavar="NAME=URI", help="A warehouse or service as a catalog in SQL, such as lake=warehouse."
        ),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Print the settings that a Spark program needs for tables, for spark-submit --properties-file. Fetches jars."""
    if find_spec("pyspark") is None:
        raise Unavailable("Spark is not installed: pip install 'lakehouse-tablestore[spark]'", code="spark-missing")
    # imported here because Arrow loads slowly, and `--help` should not wait for it
    from catalog_service.client import is_service, warehouse_location
    from tablestore.spark.settings import TUNED, catalog_settings, in_class_path, program_settings
    from tablestore.spark.sql.jar import sql_jar

    named = {
        name: uri if is_service(uri) else warehouse_location(uri)  # the program may run in another folder
        for name, uri in options_of(catalogs or (), "--sql").items()
    }
    if named:
        sql_jar()
    reached = storage_options(storage)
    needed = program_settings(packages, reached if s3 or reached else None)
    listed = {**TUNED, **needed, **(in_class_path(needed) if named else {}), **catalog_settings(named)}
    if output is Format.JSON:
        print_json(listed)
    else:
        print_lines([f"{name} {_property(value)}" for name, value in listed.items()])


def _property(value: str) -> str:
    """A value as Java reads it from a file of properties."""
    return value.replace("\\", "\\\\")

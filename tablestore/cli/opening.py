"""Opens a store or a table by ``--catalog`` and ``--token``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filestore.errors import NotFound
from filestore.storage.schemes import is_local
from tablestore.cli.secrets import secret
from tablestore.cli.settings import storage_options

if TYPE_CHECKING:
    from catalog_service.client import Catalog
    from tablestore.kafka_table import KafkaTable
    from tablestore.store import Store
    from tablestore.table import Table

__all__ = ["open_any_table", "open_catalog", "open_store", "open_table", "spark_settings", "storage_settings"]


@contextmanager
def open_store(
    catalog: str, token: str | None, *, make: bool = False, defaults: Mapping[str, str] | None = None
) -> Iterator[Store]:
    """Connects to a store.

    Args:
        catalog: The URL or path that the user gave.
        token: The token that the user gave.
        make: Whether a missing warehouse may be created. Otherwise it is an error: for a mistyped path the catalog
            would look empty.
        defaults: Default options of tables that are created: ``table-storage.<option>`` and its value.

    Raises:
        InvalidRequest: ``bad-path``, or ``bad-default``.
        NotFound: ``no-warehouse``.
    """
    # imported here because Arrow, polars and SQLAlchemy load slowly, and `--help` should not wait for them
    from tablestore.store import connect

    if not make:
        _require_there(catalog)
    with connect(catalog, token=token, options=defaults, **_of_warehouse(catalog)) as store:
        yield store


@contextmanager
def open_catalog(catalog: str, token: str | None) -> Iterator[Catalog]:
    """Connects to the catalog alone, which loads in a fraction of a store's time. Raises as `open_store`."""
    from catalog_service.client import connect  # loads what the catalog needs

    _require_there(catalog)
    with connect(catalog, token=token, **_of_warehouse(catalog)) as opened:
        yield opened


def storage_settings() -> dict[str, str]:
    """Returns the storage options of ``$TABLESTORE_STORAGE``."""
    return storage_options(os.environ.get("TABLESTORE_STORAGE"))


def spark_settings(catalog: str, token: str | None, *, s3: bool = False) -> dict[str, Any]:
    """Returns what Spark needs to reach a catalog: the arguments of `tablestore.shell.spark_engine.SparkPlace`.

    Args:
        catalog: The URL or path that the user gave.
        token: The token that the user gave.
        s3: Whether the tables of a service are in S3.
    """
    from catalog_service.client import is_service, warehouse_location

    service = is_service(catalog)
    found = _of_warehouse(catalog)
    storage = found.pop("storage_options", None) or {}
    secrets = {"token-file": token if service else None, "database-file": found.pop("database", None)}
    in_s3 = s3 or bool(storage) or not (service or is_local(catalog))
    return {
        "uri": catalog if service else warehouse_location(catalog),
        "settings": {n: v for n, v in found.items() if v} | {f"storage.{n}": v for n, v in storage.items()},
        "secrets": {name: value for name, value in secrets.items() if value is not None},
        "storage_options": storage if in_s3 else None,
    }


def _of_warehouse(catalog: str) -> dict[str, Any]:
    """Returns what a warehouse needs beside its place: storage, the database of its catalog, brokers for logs."""
    from catalog_service.client import is_service

    service = is_service(catalog)
    commits = {} if service else {"commits": os.environ.get("TABLESTORE_COMMITS") or None}
    brokers = None if service else os.environ.get("TABLESTORE_BROKERS") or None
    if is_local(catalog):
        return {"brokers": brokers, **commits}
    database = None if service else secret("TABLESTORE_DATABASE") or None
    return {"storage_options": storage_settings(), "database": database, "brokers": brokers, **commits}


def _require_there(catalog: str) -> None:
    from catalog_service.client import warehouse_location

    if is_local(catalog) and not Path(warehouse_location(catalog)).is_dir():
        raise NotFound(
            f"there is no warehouse at {catalog}: name another with --catalog or $TABLESTORE_CATALOG, or create it "
            "with `tablestore create`",
            code="no-warehouse",
        )


@contextmanager
def open_table(name: str, catalog: str, token: str | None) -> Iterator[Table]:
    """Opens a managed table, and closes its connection afterwards."""
    with open_store(catalog, token) as store:
        yield store.table(name)


@contextmanager
def open_any_table(name: str, catalog: str, token: str | None) -> Iterator[Table | KafkaTable]:
    """Opens a managed table, or a table that is a Kafka topic."""
    with open_store(catalog, token) as store:
        yield store.any_table(name)

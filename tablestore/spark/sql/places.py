"""The table stores that Spark's sessions name by ``spark.sql.catalog.<name>.<setting>``."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from pyspark.sql import SparkSession

from filestore.errors import InvalidRequest
from tablestore.spark.store import SparkStore
from tablestore.store import Store, connect

__all__ = ["Place", "Places"]

_MOST_SESSIONS = 64
"""How many sessions' writers are kept. Those of another one are made anew."""
_STORAGE = "storage."
_KNOWN = ("uri", "token-file", "database-file", "brokers", "commits")
_SECRETS = {"token": "token-file", "database": "database-file"}


@dataclass(frozen=True, slots=True)
class Place:
    """What a session says of a catalog.

    Attributes:
        catalog: The catalog's name.
        uri: A warehouse, or the URL of a service.
        token_file: The file with the service's token; None: ``TABLESTORE_TOKEN``, if it is set.
        database_file: The file with the URL of the catalog's database; None: ``TABLESTORE_DATABASE``, if it is set.
        brokers: Kafka's brokers for logs of tables that name none.
        commits: What keeps commits of a new warehouse apart.
        storage: How to reach S3.
    """

    catalog: str
    uri: str
    token_file: str | None = None
    database_file: str | None = None
    brokers: str | None = None
    commits: str | None = None
    storage: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, catalog: str, settings: Mapping[str, str]) -> Place:
        """Parses the settings. Pure.

        Raises:
            InvalidRequest: ``no-catalog-uri``; ``catalog-setting``: a setting that there is not, or a secret, which
                Spark would show.
        """
        prefix = f"spark.sql.catalog.{catalog}"
        for name in settings:
            if name in _SECRETS:
                raise InvalidRequest(
                    f"{prefix}.{name} is a secret, and Spark shows settings: write it into a file that only you can "
                    f"read, and set {prefix}.{_SECRETS[name]}; or set the variable TABLESTORE_{name.upper()}",
                    code="catalog-setting",
                )
            if name not in _KNOWN and not name.startswith(_STORAGE):
                raise InvalidRequest(
                    f"there is no setting {prefix}.{name}; there are {', '.join(_KNOWN)} and {_STORAGE}<option>",
                    code="catalog-setting",
                )
        if not settings.get("uri"):
            raise InvalidRequest(
                f"set {prefix}.uri to a warehouse's folder or URL, or to the URL of a catalog service",
                code="no-catalog-uri",
            )
        return cls(
            catalog,
            settings["uri"],
            settings.get("token-file"),
            settings.get("database-file"),
            settings.get("brokers"),
            settings.get("commits"),
            tuple(sorted((n.removeprefix(_STORAGE), v) for n, v in settings.items() if n.startswith(_STORAGE))),
        )

    def connect(self) -> Store:
        """Connects to it. Secrets are read at this moment."""
        service = self.uri.startswith(("http://", "https://"))
        return connect(
            self.uri,
            _secret("TABLESTORE_TOKEN", self.token_file) if service else None,
            database=None if service else _secret("TABLESTORE_DATABASE", self.database_file),
            storage_options=dict(self.storage) or None,
            brokers=None if service else self.brokers,
            commits=None if service else self.commits,
        )


def _secret(variable: str, path: str | None) -> str | None:
    named = path or os.environ.get(f"{variable}_FILE")
    if named is None:
        return os.environ.get(variable)
    try:
        return Path(named).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidRequest(
            f"the file {named} cannot be read ({error.strerror}), which should have {variable}", code="catalog-setting"
        ) from error


@dataclass
class Places:
    """The stores that are open in this process. Sessions that name the same place share its store."""

    _stores: dict[Place, Store] = field(default_factory=dict)
    _writers: OrderedDict[tuple[str, Place], SparkStore] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def store(self, place: Place) -> Store:
        """Returns the open store of a place, and opens it at its first use."""
        with self._lock:
            if place not in self._stores:
                self._stores[place] = place.connect()
            return self._stores[place]

    def in_session(self, place: Place, session_id: str, session: SparkSession) -> SparkStore:
        """Returns the store in a session, in which its jobs run."""
        store = self.store(place)
        with self._lock:
            known = self._writers.pop((session_id, place), None) or SparkStore(session, store)
            self._writers[session_id, place] = known
            while len(self._writers) > _MOST_SESSIONS:
                self._writers.popitem(last=False)
            return known

    def close(self) -> None:
        """Closes all stores."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()
            self._writers.clear()

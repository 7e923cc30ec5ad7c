"""The table stores that Spark's sessions name by ``spark.sql.catalog.<name>.<setting>``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from pyspark.sql import SparkSession

from catalog_service.client import is_service
from filestore.errors import InvalidRequest
from filestore.secrets import secret, secret_in
from tablestore.spark.store import SparkStore
from tablestore.store import Store, connect

__all__ = ["Place", "Places"]

_MOST_SESSIONS = 64
"""The number of sessions whose writers are kept. Those of another one are made anew."""
_TOKEN = "TABLESTORE_TOKEN"
_STORAGE = "storage."
_KNOWN = ("uri", "token-file", "database-file", "brokers", "commits")
_SECRETS = {"token": "token-file", "database": "database-file"}


@dataclass(frozen=True, slots=True)
class Place:
    """The settings of a session for one catalog.

    Attributes:
        catalog: The catalog's name.
        uri: A warehouse, or the URL of a service.
        token_file: The file with the service's token; None: ``TABLESTORE_TOKEN``, if it is set and `trusted`.
        database_file: The file with the URL of the catalog's database.
        brokers: Kafka's brokers for logs of tables that name none.
        commits: What keeps commits of a new warehouse apart.
        storage: How to reach S3.
        trusted: Whoever runs the process has named the place, and not somebody who only has a session in it: its
            secrets may be sent there.
    """

    catalog: str
    uri: str
    token_file: str | None = None
    database_file: str | None = None
    brokers: str | None = None
    commits: str | None = None
    storage: tuple[tuple[str, str], ...] = ()
    trusted: bool = True

    @classmethod
    def of(cls, catalog: str, settings: Mapping[str, str], *, trusted: bool = True) -> Place:
        """Parses the settings. Pure.

        Raises:
            InvalidRequest: ``no-catalog-uri``; ``catalog-setting``: a setting that there is not, a secret, which Spark
                would show, or a file that a session names which is not `trusted`.
        """
        prefix = f"spark.sql.catalog.{catalog}"
        for name in settings:
            if name in _SECRETS:
                raise InvalidRequest(
                    f"{prefix}.{name} is a secret, and Spark shows settings: write it into a file that only you can "
                    f"read, and set {prefix}.{_SECRETS[name]}",
                    code="catalog-setting",
                )
            if name not in _KNOWN and not name.startswith(_STORAGE):
                raise InvalidRequest(
                    f"there is no setting {prefix}.{name}; there are {', '.join(_KNOWN)} and {_STORAGE}<option>",
                    code="catalog-setting",
                )
        if not trusted and (files := [name for name in settings if name.endswith("-file")]):
            raise InvalidRequest(
                f"{prefix}.{files[0]} is read by the server's process: set it where the server is started, with the "
                "catalog's other settings, and not in a session",
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
            trusted,
        )

    def connect(self) -> Store:
        """Connects to it. Secrets are read at this moment."""
        service = is_service(self.uri)
        return connect(
            self.uri,
            self._token() if service else None,
            database=None if service or self.database_file is None else secret_in(self.database_file),
            storage_options=dict(self.storage) or None,
            brokers=None if service else self.brokers,
            commits=None if service else self.commits,
        )

    def _token(self) -> str | None:
        if self.token_file is not None:
            return secret_in(self.token_file)
        return secret(_TOKEN) if self.trusted else None


@dataclass
class Places:
    """The stores that are open in this process. Sessions that name the same place share its store."""

    _stores: dict[Place, Store] = field(default_factory=dict)
    _opening: dict[Place, Lock] = field(default_factory=dict)
    _writers: OrderedDict[tuple[str, Place], SparkStore] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def store(self, place: Place) -> Store:
        """Returns the open store of a place, and opens it at its first use."""
        with self._lock:
            opening = self._opening.setdefault(place, Lock())
        with opening:  # of one place: another one may not answer
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

"""Storages with an empty folder, for tests."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from filestore.storage import obstore_client, retries, s3_settings, s3fs_client
from filestore.storage.interface import Storage
from filestore.storage.locations import S3Store
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from tests.servers.s3 import S3Endpoint

__all__ = ["Place", "content", "impatient", "put", "s3_place"]


@dataclass(frozen=True)
class Place:
    """A storage with an empty folder."""

    storage: Storage
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def anew(self) -> Storage:
        """The same storage as another process has it, which knows nothing yet."""
        return pickle.loads(pickle.dumps(self.storage))  # type: ignore[no-any-return]


def s3_place(server: S3Endpoint, library: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    server.set_environment(monkeypatch)
    storage = ObjectStorage(S3Store(S3Settings(endpoint=server.endpoint, region=server.region), library))
    return Place(storage, f"s3://{server.new_bucket()}/a/table")


def impatient(monkeypatch: pytest.MonkeyPatch, seconds: float = 1) -> None:
    """Clients that are opened from now on wait less long for a reply, and nobody pauses long before a repetition."""
    for client in (obstore_client, s3fs_client, s3_settings):
        monkeypatch.setattr(client, "REQUEST_S", seconds)
    monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(retries, "_LONGEST_PAUSE_S", 0.05)


def put(place: Place, name: str, data: bytes) -> str:
    """Writes a file as tables do: opened, written, closed, and durable."""
    path = place.path(name)
    with place.storage.open_write(path) as file:
        file.write(data)
    place.storage.sync(path)
    return path


def content(storage: Storage, path: str) -> bytes:
    """All bytes of a file, as readers of Parquet get them."""
    with storage.open_read(path) as source, source.part([(0, source.size)]) as part:
        return bytes(part.file.read())

"""Storages with an empty folder, for tests."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from filestore.storage.interface import Storage
from filestore.storage.locations import S3Store
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from tests.servers.s3 import S3Endpoint

__all__ = ["Place", "s3_place"]


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
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    storage = ObjectStorage(S3Store(S3Settings(endpoint=server.endpoint, region=server.region), library))
    return Place(storage, f"s3://{server.new_bucket()}/a/table")

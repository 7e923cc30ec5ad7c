"""Chooses the storage that serves a location, which is a path or a URL; no other module does so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from filestore.errors import InvalidRequest, Unsupported
from filestore.storage.client import ObjectClient
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from filestore.storage.schemes import S3_SCHEMES, root_of, scheme_of

if TYPE_CHECKING:
    from filestore.storage.obstore_client import ObstoreClient
    from filestore.storage.s3fs_client import S3fsClient

__all__ = ["FsspecStore", "S3Store", "Storages", "storage_of"]


@dataclass(frozen=True, slots=True)
class S3Store:
    """Opens clients of S3.

    Attributes:
        settings: How to reach it.
        library: ``obstore`` or ``s3fs``; None takes obstore if it is installed.
    """

    settings: S3Settings = field(default_factory=S3Settings)
    library: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options with which `storage_of` reaches the same store."""
        return self.settings.options()

    def shared(self) -> S3Store:
        """The same for other processes, which may have other variables and profiles."""
        return replace(self, settings=self.settings.shared())

    def __call__(self) -> ObjectClient:
        """Opens a client for this process."""
        library = self.library or ("obstore" if find_spec("obstore") else "s3fs")
        if find_spec(library) is None:
            raise Unsupported(
                "tables in S3 need more packages: pip install 'lakehouse-tablestore[s3]'", code="storage-package"
            )
        client: ObstoreClient | S3fsClient
        if library == "obstore":
            from filestore.storage.obstore_client import ObstoreClient

            client = ObstoreClient(self.settings)
        else:
            from filestore.storage.s3fs_client import S3fsClient

            client = S3fsClient(self.settings)
        from filestore.storage.renewed_client import RenewedClient

        return client if client.credentials is None else RenewedClient(client, client.credentials)


@dataclass(frozen=True, slots=True)
class FsspecStore:
    """Opens a file system of fsspec, which takes its settings from its own environment variables and files.

    Attributes:
        root: What the URLs of its files begin with: a scheme and a host, or what is in the place of one.
    """

    root: str

    @property
    def options(self) -> dict[str, str]:
        """Returns no options: the class says why."""
        return {}

    def shared(self) -> FsspecStore:
        """The same, since it has no settings."""
        return self

    def __call__(self) -> ObjectClient:
        """Opens a client for this process."""
        if find_spec("fsspec") is None:
            raise Unsupported(
                f"tables at {self.root} need more packages: pip install 'lakehouse-tablestore[s3]'",
                code="storage-package",
            )
        from filestore.storage.fsspec_client import FsspecClient

        try:
            return FsspecClient.open(self.root)
        except (ImportError, TypeError, ValueError) as error:  # the second: its URLs need more than a host
            raise Unsupported(
                f"there is no file system for {self.root} ({error}): install the package that it names, or take "
                "a location whose scheme is file, s3, or one that fsspec knows",
                code="storage-package",
            ) from error


def storage_of(location: str, options: Mapping[str, str] | None = None) -> Storage:
    """Returns the storage of a location. It sends no request yet.

    Args:
        location: A path, or a URL: ``file:``, ``s3://``, or another scheme that fsspec knows.
        options: How to reach it: `S3Settings.of`. Only S3 has options.

    Raises:
        InvalidRequest: ``bad-storage-option``.
    """
    scheme = scheme_of(location)
    if scheme in S3_SCHEMES:
        return ObjectStorage(S3Store(S3Settings.of(options or {})))
    if options:
        raise InvalidRequest(
            f"{location} takes no storage options, but was given {', '.join(sorted(options))}: only s3:// has options",
            code="bad-storage-option",
        )
    return LocalStorage() if scheme in ("", "file") else ObjectStorage(FsspecStore(root_of(location)))


class Storages:
    """The storages of one process: one for S3 and its options, one for each other host. Threads may share it.

    It is picklable.

    Args:
        options: How to reach S3: `S3Settings.of`. They take precedence over what a catalog says.

    Raises:
        InvalidRequest: ``bad-storage-option``.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options = S3Settings.of(options or {}).options()
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], Storage] = {}

    def __reduce__(self) -> tuple[type[Storages], tuple[dict[str, str]]]:
        return Storages, (self._options,)

    def of(self, location: str, defaults: Mapping[str, str] | None = None) -> Storage:
        """Returns the storage of a location, always the same one, so that what it has read is kept.

        Args:
            location: As for `storage_of`. Options are for S3 only, so those for other locations are left out.
            defaults: Options that the catalog gives.
        """
        in_s3 = scheme_of(location) in S3_SCHEMES
        options = S3Settings.of(defaults or {}).options() | self._options if in_s3 else {}
        key = (scheme_of(location) if in_s3 else root_of(location), tuple(sorted(options.items())))
        if key not in self._known:
            self._known.setdefault(key, storage_of(location, options))
        return self._known[key]

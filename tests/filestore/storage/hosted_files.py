"""File systems of fsspec in memory: ``memory://``, and ``hosted://``, whose URLs name a host as those of HDFS do."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem

__all__ = ["HostedFileSystem"]

HOSTS: dict[str, tuple[dict[str, Any], list[str]]] = {}
LOCK = threading.Lock()


class HostedFileSystem(MemoryFileSystem):
    """Each host has files of its own, and one whose name begins with ``away`` does not answer.

    Paths, as the file system returns them, have neither scheme nor host.
    """

    protocol: ClassVar[str] = "hosted"  # type: ignore[misc]

    def __init__(self, host: str, **how: Any) -> None:
        if host.startswith("away"):
            raise ConnectionRefusedError("nobody listens there")
        super().__init__(**how)
        self.store, self.pseudo_dirs = HOSTS.setdefault(host, ({}, [""]))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, str) and path.startswith("hosted://"):
            path = path.removeprefix("hosted://").partition("/")[2]
        return super()._strip_protocol(path)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        host = path.removeprefix("hosted://").partition("/")[0]
        return {"host": host} if host else {}

    def rm_file(self, path: str) -> None:
        """Takes no URL, as some file systems do not."""
        assert "://" not in path
        super().rm_file(path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **how: Any) -> None:
        """Is exclusive between threads, too."""
        with LOCK:
            super().pipe_file(path, value, mode, **how)


register_implementation("hosted", HostedFileSystem, clobber=True)

"""The folder of an embedded log: made, moved and removed as a whole (PROTOCOL.md section 6)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from filestore.ambient import Ambient
from filestore.decoding import well_formed
from filestore.errors import AlreadyExists, Corrupt, NotFound, TableStoreError
from filestore.refused import refused, unreadable
from filestore.storage.local import sync_folder
from log.table.config import LogConfig
from log.table.embedded.segments import create_file, partition_path

__all__ = ["LogFolder"]

_IDENTITY_FILE = "log.json"
_FORMAT = 1
_IDENTITY_ADVICE = "restore it, or write it anew (PROTOCOL.md section 6 says what it holds)"
_MOST_MOVES = 10
_LOST = "lost-"


class LogFolder:
    """The folder with a log's partitions and its identity.

    Args:
        config: Its ``location`` is the folder.
        ambient: The source of ids.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self._config = config
        self._ambient = ambient
        self._folder = Path(config.location)

    def exists(self) -> bool:
        """Returns whether it holds a log."""
        try:
            os.stat(self._folder / _IDENTITY_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise refused(f"cannot look for a log in {self._folder}", error) from error
        return True

    def create(self) -> None:
        """Creates the folder under another name, then renames it. A second call for the same table changes nothing."""
        if self.exists():
            self._check_same()
            return self._gather()
        draft = self._draft()
        try:
            self._write(draft)
            draft.rename(self._folder)
        except OSError as error:
            # Another process was faster if its log is there now.
            if not self.exists():
                raise refused(f"cannot make a log in {self._folder}", error, "log-unavailable") from error
            self._check_same()
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(self._folder.parent)

    def create_anew(self) -> None:
        """Creates the folder under another name, moves away what is there, and renames it. It deletes no record.

        Whoever calls it or `create` next completes what a killed process has left.
        """
        draft = self._draft()
        try:
            for _ in range(_MOST_MOVES):
                if not self._is_written(draft):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    self._folder.rename(self._folder.with_name(f"{self._folder.name}.{_LOST}{self._ambient.new_id()}"))
                if _renamed(draft, self._folder):
                    sync_folder(self._folder.parent)
                    return self._gather()
        except OSError as error:
            raise refused(f"cannot make a new log in {self._folder}", error, "log-unavailable") from error
        raise AlreadyExists(
            f"others make {self._folder} again and again: stop the writers of the table, and retry", code="log-exists"
        )

    def drop(self) -> None:
        """Renames the folder, then deletes it."""
        renamed = self._draft()
        try:
            self._folder.rename(renamed)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise refused(f"cannot remove the log in {self._folder}", error, "log-unavailable") from error
        for leftover in (*self._drafts(), *self._lost()):
            shutil.rmtree(leftover, ignore_errors=True)

    def identity(self) -> dict[str, Any]:
        """Reads ``log.json``.

        Raises:
            NotFound: ``log-not-found``.
            Corrupt: ``log-corrupt``.
        """
        path = self._folder / _IDENTITY_FILE
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"there is no log in {self._folder}: {self._config.if_gone}", code="log-not-found") from None
        except OSError as error:
            raise _unreadable(path, error) from error
        with well_formed(f"the log's file {path}", code="log-corrupt", advice=_IDENTITY_ADVICE):
            stored: dict[str, Any] = json.loads(text)
            return {name: stored[name] for name in ("format", "table_id", "log_id", "buckets")}

    def own_identity(self) -> dict[str, Any]:
        """Reads ``log.json`` as `identity` does.

        Raises:
            Corrupt: ``log-replaced``: it is another table's.
        """
        stored = self.identity()
        if stored["table_id"] != self._config.table_id:
            raise Corrupt(
                f"the log's file {self._folder / _IDENTITY_FILE} is that of table {stored['table_id']}, and not of "
                f"table {self._config.table_id}: restore its own log, or begin a new one at the newest version with "
                "`tablestore new-log` (Table.new_log)",
                code="log-replaced",
            )
        return stored

    def _write(self, draft: Path) -> None:
        draft.mkdir(parents=True)
        for bucket in range(self._config.buckets):
            create_file(partition_path(draft, bucket))
        _write_durably(draft / _IDENTITY_FILE, json.dumps(self._new_identity(), indent=1))

    def _is_written(self, draft: Path) -> bool:
        """Writes a draft, if it is not there, and returns whether it is there: another process may gather drafts."""
        try:
            if not draft.exists():
                self._write(draft)
        except (OSError, sqlite3.Error):
            if draft.exists():
                raise
        return draft.exists()

    def _gather(self) -> None:
        """Moves into the folder what was moved away from its place, and removes drafts with all else that they have.

        A living process whose draft goes makes it again. Versions of 2026-11-28 moved a log into their draft.
        """
        try:
            for lost in (*self._lost(), *(lost for draft in self._drafts() for lost in draft.glob(f"{_LOST}*"))):
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    lost.rename(self._folder / lost.name.removeprefix(f"{self._folder.name}."))
            for draft in self._drafts():
                with contextlib.suppress(FileNotFoundError):  # renamed, so that nobody makes a log of a part of it
                    draft.rename(self._draft())
        except OSError as error:
            raise refused(f"cannot move the former log into {self._folder}", error, "log-unavailable") from error
        for draft in self._drafts():
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(self._folder.parent)

    def _drafts(self) -> list[Path]:
        return [*self._folder.parent.glob(f"{self._folder.name}.*.tmp")]

    def _lost(self) -> list[Path]:
        return [*self._folder.parent.glob(f"{self._folder.name}.{_LOST}*")]

    def _draft(self) -> Path:
        return self._folder.with_name(f"{self._folder.name}.{self._ambient.new_id()}.tmp")

    def _new_identity(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "table_id": self._config.table_id,
            "log_id": self._ambient.new_id(),
            "buckets": self._config.buckets,
        }

    def _check_same(self) -> None:
        stored = self.identity()
        wanted = {
            "format": _FORMAT,
            "table_id": self._config.table_id,
            "buckets": self._config.buckets,
        }
        for name, value in wanted.items():
            if stored[name] != value:
                raise AlreadyExists(
                    f"{self._folder} holds a log with {name} = {stored[name]}, and this table needs {value}: "
                    "drop that log or choose another location",
                    code="log-exists",
                )


def _renamed(draft: Path, folder: Path) -> bool:
    """Renames a folder; returns False if it is gone, or if there is one with that name, as of a writer's lease."""
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
        return False
    return True


def _unreadable(path: Path, error: OSError) -> TableStoreError:
    found = unreadable(f"cannot read the log's file {path}", error)
    return Corrupt(found.message, code="log-corrupt") if isinstance(found, Corrupt) else found


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())

"""Every error that Tablestore raises, grouped by what the caller does next.

    TableStoreError
    ├── InvalidRequest      fix the request: nothing was changed
    ├── NotFound            create it, or correct the name
    ├── AlreadyExists       pick another name, or pass ``if_not_exists``
    ├── Conflict            read again and retry: another writer was faster
    ├── Unavailable         retry later: a server or a disk did not answer
    │   └── CommitUnknown   look whether the commit id is in the history before retrying
    ├── Unsupported         use another way: the store cannot do this
    └── Corrupt             restore or report: stored bytes break an invariant of FORMAT.md

``code`` is stable and meant for programs, the message is meant for people and may change.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "CommitUnknown",
    "Conflict",
    "Corrupt",
    "InvalidRequest",
    "NotFound",
    "TableStoreError",
    "Unavailable",
    "Unsupported",
]


class TableStoreError(Exception):
    """The root: catching it catches everything that this project raises on purpose.

    Args:
        message: What was wrong with which value, and what to do.
        code: A stable name finer than the class, such as ``unknown-option``; the class's own if absent.
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps ``code`` across processes: errors travel back from Spark's workers."""
        return (_rebuild, (type(self), self.message, self.code))


class InvalidRequest(TableStoreError):
    """The request itself is wrong; the same request fails again. Nothing was changed."""

    default_code = "invalid-request"


class NotFound(TableStoreError):
    """The named database, table, version or column does not exist."""

    default_code = "not-found"


class AlreadyExists(TableStoreError):
    """The name is taken."""

    default_code = "already-exists"


class Conflict(TableStoreError):
    """Another writer committed first and the work cannot be rebased. Read again and retry."""

    default_code = "conflict"


class Unavailable(TableStoreError):
    """A store, broker or service did not answer. Retry later; nothing was committed."""

    default_code = "unavailable"


class CommitUnknown(Unavailable):
    """The storage failed in the middle of a commit: look for the commit id in the history before retrying."""

    default_code = "commit-unknown"


class Unsupported(TableStoreError):
    """The store understands the request and cannot do it."""

    default_code = "unsupported"


class Corrupt(TableStoreError):
    """Stored bytes break an invariant of FORMAT.md. Restore them or report it."""

    default_code = "corrupt"


def _rebuild(kind: type[TableStoreError], message: str, code: str) -> TableStoreError:
    return kind(message, code=code)

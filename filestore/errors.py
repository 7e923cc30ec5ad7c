"""The errors that Tablestore raises, grouped by what the caller can do next.

    TableStoreError
    ├── InvalidRequest      correct the request: nothing was changed
    ├── NotFound            create it, or correct the name
    ├── AlreadyExists       choose another name, or pass ``if_not_exists``
    ├── Conflict            read again and retry: another writer was faster
    ├── Unavailable         retry later: a server or a disk did not answer
    │   └── CommitUnknown   check whether the commit id is in the history before a retry
    ├── Unsupported         use another way: this version cannot do it
    └── Corrupt             restore or report: stored bytes break an invariant of FORMAT.md

``code`` is stable and meant for programs; the message is meant for people and may change.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Self

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
    """The root of all errors that Tablestore raises on purpose.

    Args:
        message: Which value is wrong, why, and what to do.
        code: A stable name of the error, such as ``unknown-option``; None uses the class's own.
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.add_note(f"code: {self.code}")  # for tracebacks: of errors in Spark's processes they are all there is

    def about(self, subject: str) -> Self:
        """Returns the same error, whose message begins with what it is about."""
        error = copy(self)
        error.message = f"{subject}: {self.message}"
        error.args = (error.message,)
        return error

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps ``code`` across processes, since Spark's workers send errors to the driver."""
        return (_rebuild, (type(self), self.message, self.code))


class InvalidRequest(TableStoreError):
    """The request is wrong, and would fail again. Nothing was changed."""

    default_code = "invalid-request"


class NotFound(TableStoreError):
    """The named database, table, version or column does not exist."""

    default_code = "not-found"


class AlreadyExists(TableStoreError):
    """The name is taken."""

    default_code = "already-exists"


class Conflict(TableStoreError):
    """Another writer committed first and the work cannot be rebased. Read again and retry.

    Attributes:
        again: The same operation may succeed if it begins again on the newest version. The commit protocol
            (`filestore.commit.protocol`) does so up to ``commit.max-retries`` times before a caller sees the conflict.
    """

    default_code = "conflict"

    def __init__(self, message: str, *, code: str | None = None, again: bool = False) -> None:
        super().__init__(message, code=code)
        self.again = again

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_conflict, (type(self), self.message, self.code, self.again))


class Unavailable(TableStoreError):
    """A disk, broker or service did not answer: retry later. Nothing was committed."""

    default_code = "unavailable"


class CommitUnknown(Unavailable):
    """The storage failed during a commit: look for the commit id in the history before a retry."""

    default_code = "commit-unknown"


class Unsupported(TableStoreError):
    """The request is understood, but this version cannot do it."""

    default_code = "unsupported"


class Corrupt(TableStoreError):
    """Stored bytes break an invariant of FORMAT.md: restore them or report it."""

    default_code = "corrupt"


def _rebuild(kind: type[TableStoreError], message: str, code: str) -> TableStoreError:
    return kind(message, code=code)


def _rebuild_conflict(kind: type[Conflict], message: str, code: str, again: bool) -> Conflict:
    return kind(message, code=code, again=again)

"""The errors of storages: one function for each cause, which all storages and clients call."""

from __future__ import annotations

from filestore.errors import AlreadyExists, Conflict, NotFound, Unavailable, Unsupported

__all__ = [
    "BUSY",
    "busy",
    "cut_short",
    "exists_already",
    "file_changed",
    "no_bucket",
    "no_conditions",
    "no_file",
    "no_permission",
]

BUSY = "storage-busy"
"""The code of errors after which the same request may succeed: 5xx, 409 and 429, a lost connection, a time-out."""

_LONGEST = 300


def no_file(path: str) -> NotFound:
    """There is no such file."""
    return NotFound(f"file {path} does not exist", code="file-not-found")


def exists_already(path: str) -> AlreadyExists:
    """The file exists, and was to be created."""
    return AlreadyExists(f"file {path} exists already", code="file-exists")


def file_changed(path: str) -> Conflict:
    """The file is not the one that was to be replaced."""
    return Conflict(f"file {path} was changed or removed by another process", code="file-changed")


def no_conditions(path: str) -> Unsupported:
    """The storage cannot replace a file only if nobody else has."""
    return Unsupported(
        f"the store of {path} cannot replace a file on the condition that nobody else has (HTTP's If-Match), which the "
        "leases of writers need: a table with a log needs a local disk or S3; here take log.system = none",
        code="no-conditional-writes",
    )


def no_bucket(verb: str, path: str) -> NotFound:
    """There is no such bucket."""
    return NotFound(f"cannot {verb} {path}: there is no such bucket; create it first", code="no-bucket")


def no_permission(verb: str, path: str, error: BaseException) -> Unavailable:
    """The store refuses the credentials: a repetition would fail, too."""
    return Unavailable(
        f"cannot {verb} {path}: the store refuses the credentials of this process, or they lack this right "
        f"({_short(error)})",
        code="no-permission",
    )


def busy(verb: str, path: str, error: BaseException) -> Unavailable:
    """The store did not answer, or not now: the request can be repeated."""
    return Unavailable(f"cannot {verb} {path}: {_short(error)}; retry", code=BUSY)


def cut_short(path: str) -> Unavailable:
    """The reply had fewer bytes than were asked for."""
    return Unavailable(f"cannot read {path}: the reply ended early; retry", code=BUSY)


def _short(error: BaseException) -> str:
    """Returns the error's first words: the rest are a server's answer and a client's structures, for nobody's eyes."""
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__

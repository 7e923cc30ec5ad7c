"""Makes the errors of storages: one function for each cause, which all storages and clients call."""

from __future__ import annotations

import re
from typing import Any

from filestore.errors import AlreadyExists, Conflict, NotFound, Unavailable, Unsupported

__all__ = [
    "BUSY",
    "NO_ANSWER",
    "NO_FILE",
    "busy",
    "cut_short",
    "exists_already",
    "failed",
    "file_changed",
    "no_bucket",
    "no_conditions",
    "no_file",
    "no_permission",
    "refused",
    "status_of",
]

BUSY = "storage-busy"
"""The code of errors by which a store says that it did not do what was asked, and that it may do it later."""

NO_ANSWER = "storage-no-answer"
"""The code of errors after which nobody knows what the store did, or what it will still do: a time-out, a connection
that ended before the reply, a gateway that gave up."""

NO_FILE = "file-not-found"
"""The code of errors of files that do not exist."""

_BAD_REQUEST = 400
_NOT_ALLOWED = (401, 403)
_MAY_SUCCEED_LATER = (408, 409, 425, 429, 500, 503, 509, 529)
_FROM_A_GATEWAY = (502, 504)
_BAD_CREDENTIALS = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId")
_TOO_SLOW = ("RequestTimeout", "IncompleteBody")
_UNTRUSTED = ("InvalidCertificate", "CERTIFICATE_VERIFY_FAILED", "invalid peer certificate")

_LONGEST = 300


def no_file(path: str) -> NotFound:
    """Makes the error for a file that does not exist."""
    return NotFound(f"file {path} does not exist", code=NO_FILE)


def exists_already(path: str) -> AlreadyExists:
    """Makes the error for a file that was to be created, and exists."""
    return AlreadyExists(f"file {path} exists already", code="file-exists")


def file_changed(path: str) -> Conflict:
    """Makes the error for a file that is not the one that was to be replaced."""
    return Conflict(f"file {path} was changed or removed by another process", code="file-changed")


def no_conditions(path: str) -> Unsupported:
    """Makes the error for a storage that cannot replace a file on the condition that nobody else has."""
    return Unsupported(
        f"the store of {path} cannot replace a file on the condition that nobody else has (HTTP's If-Match), which the "
        "leases of writers need: a table with a log needs a local disk or S3; here take log.system = none",
        code="no-conditional-writes",
    )


def no_bucket(verb: str, path: str) -> NotFound:
    """Makes the error for a bucket that does not exist."""
    return NotFound(f"cannot {verb} {path}: there is no such bucket; create it first", code="no-bucket")


def no_permission(verb: str, path: str, error: BaseException) -> Unavailable:
    """Makes the error for credentials that the store refuses: a repetition would fail, too."""
    return Unavailable(
        f"cannot {verb} {path}: the store refuses the credentials of this process, or they lack this right "
        f"({_short(error)})",
        code="no-permission",
    )


def busy(verb: str, path: str, error: BaseException) -> Unavailable:
    """Makes the error for a request that the store did not serve, and may serve later."""
    return Unavailable(f"cannot {verb} {path}: {_short(error)}; retry", code=BUSY)


def _no_answer(verb: str, path: str, error: BaseException) -> Unavailable:
    """Makes the error for a missing reply. A write may have been done, or may be done when its request arrives."""
    return Unavailable(f"cannot {verb} {path}: the store did not answer ({_short(error)}); retry", code=NO_ANSWER)


def _untrusted(verb: str, path: str, error: BaseException) -> Unavailable:
    """Makes the error for a store whose certificate this process does not trust."""
    return Unavailable(
        f"cannot {verb} {path}: this process does not trust the certificate of the store; if a private authority has "
        "signed it, set AWS_CA_BUNDLE to a file (PEM) with that authority's certificate, and else check that the "
        f"endpoint has the name of the certificate and that neither has expired ({_short(error)})",
        code="tls-certificate",
    )


def refused(verb: str, path: str, error: BaseException) -> Unavailable:
    """Makes the error for a request that the store refuses, and would refuse again."""
    return Unavailable(
        f"cannot {verb} {path}: the store refuses the request ({_short(error)}); check the location, the storage "
        "options endpoint, region and path-style, and whether the credentials have expired",
        code="storage-refused",
    )


def failed(verb: str, path: str, error: BaseException, status: int | None) -> Unavailable:
    """Returns the error of a request that failed for none of the reasons above.

    Args:
        verb: What was asked for, such as ``read``.
        path: The object.
        error: The client's error, which contains S3's code, such as ``ExpiredToken``.
        status: The HTTP status of the reply; None if there was none.
    """
    if status is None and _contains(error, _UNTRUSTED):
        return _untrusted(verb, path, error)
    if status is None or status in _FROM_A_GATEWAY:
        return _no_answer(verb, path, error)
    if status in _NOT_ALLOWED or (status == _BAD_REQUEST and _contains(error, _BAD_CREDENTIALS)):
        return no_permission(verb, path, error)
    if status in _MAY_SUCCEED_LATER or (status == _BAD_REQUEST and _contains(error, _TOO_SLOW)):
        return busy(verb, path, error)
    return refused(verb, path, error)


def status_of(refusal: Any) -> int | None:
    """Returns the HTTP status of a refusal of S3 (botocore's `ClientError`)."""
    found: int | None = refusal.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return found


def cut_short(path: str) -> Unavailable:
    """Makes the error for a reply with fewer bytes than were asked for."""
    return Unavailable(f"cannot read {path}: the reply ended early; retry", code=BUSY)


def _contains(error: BaseException, words: tuple[str, ...]) -> bool:
    return any(word in str(error) for word in words)


_ECHO = re.compile(r"<AWSAccessKeyId|<Token|<StringToSign")
"""The places from which on a refusal of S3 repeats what the request had, such as a session's token."""


_CAUSE = re.compile(r'\b(?:message|error): "([^"\n]*)"')
"""The words of the operating system in the structures that obstore prints behind its error."""


def _short(error: BaseException) -> str:
    """Returns the error's first words, and the cause: the rest is a server's answer and a client's structures."""
    text, _, structures = str(error).partition("Debug source:")
    causes = [cause for cause in _CAUSE.findall(structures) if cause not in text][-1:]
    words = _ECHO.split(": ".join(" ".join(part.split()) for part in (text, *causes)), maxsplit=1)[0]
    return words[:_LONGEST] or type(error).__name__

"""Problem documents of RFC 9457: how an error looks in an answer. One table converts errors to them, and back.

A document's ``type`` names the class of the error (what the caller can do next), its ``code`` the error itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, Field

from catalog_service.wire.messages import with_examples
from filestore.errors import (
    AlreadyExists,
    CommitUnknown,
    Conflict,
    Corrupt,
    InvalidRequest,
    NotFound,
    TableStoreError,
    Unavailable,
    Unsupported,
)

__all__ = [
    "INTERNAL_ERROR",
    "MEDIA_TYPE",
    "Problem",
    "Violation",
    "error_of",
    "invalid_body",
    "problem_of",
]

MEDIA_TYPE = "application/problem+json"
INTERNAL_ERROR = "internal-error"
_TYPE = "urn:tablestore:problem:"

# Unsupported is 501, not 400: the request is valid, and no correction of it helps with this version of the service.
_CLASSES: Mapping[type[TableStoreError], tuple[int, str]] = {
    InvalidRequest: (400, "The request is wrong"),
    NotFound: (404, "Not found"),
    AlreadyExists: (409, "Already exists"),
    Conflict: (409, "Conflict"),
    Unsupported: (501, "Not supported"),
    CommitUnknown: (503, "The outcome of the commit is unknown"),
    Unavailable: (503, "Unavailable"),
    Corrupt: (500, "Stored data is damaged"),
    TableStoreError: (500, "Internal error"),
}
# pydantic's own messages for these speak of Python
_PLAIN = {
    "model_attributes_type": "must be a JSON object, sent with Content-Type: application/json",
    "json_invalid": "is not valid JSON",
}
_BY_TYPE = {_TYPE + kind.default_code: kind for kind in _CLASSES}
_BY_STATUS: Mapping[int, type[TableStoreError]] = {
    400: InvalidRequest,
    401: InvalidRequest,
    403: InvalidRequest,
    404: NotFound,
    409: Conflict,
    501: Unsupported,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


class Violation(BaseModel):
    """A part of a request that does not fit the schema."""

    pointer: str = Field(description="The place, as a JSON pointer that begins with body, query or path.")
    detail: str


class Problem(BaseModel):
    """An error in the format of RFC 9457. Programs check `code`; people read `detail`, which may change."""

    model_config = with_examples(
        {
            "type": "urn:tablestore:problem:not-found",
            "title": "Not found",
            "status": 404,
            "detail": "there is no table 'orders' in database 'shop': create it, or look at the list of tables",
            "instance": "/api/v1/databases/shop/tables/orders",
            "code": "table-not-found",
        }
    )

    type: str = Field(description="The class of the error; it says what the client can do next.")
    title: str
    status: int
    detail: str = Field(description="What is wrong with which value, and what to do.")
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="The stable code of the error.")
    errors: list[Violation] | None = Field(None, description="Each violation, for `invalid-request`.")


def problem_of(error: TableStoreError, instance: str, status: int | None = None) -> Problem:
    """Converts an error to a document.

    Args:
        error: The error.
        instance: The path of the request.
        status: Replaces the status of the error's class, for what HTTP itself defines (401, 405).
    """
    kind, (default_status, title) = _class_of(error)
    return Problem(
        type=_TYPE + kind.default_code,
        title=title,
        status=status or default_status,
        detail=error.message,
        instance=instance,
        code=error.code,
    )


def error_of(problem: Problem) -> TableStoreError:
    """Converts a document back to an error."""
    kind = _BY_TYPE.get(problem.type) or _BY_STATUS.get(problem.status, TableStoreError)
    return kind(problem.detail, code=problem.code)


def invalid_body(errors: Iterable[Mapping[str, Any]]) -> tuple[InvalidRequest, list[Violation]]:
    """Converts pydantic's errors to one error and a list of violations."""
    violations = [
        Violation(pointer="/" + "/".join(str(part) for part in e["loc"]), detail=_sentence(e)) for e in errors
    ]
    detail = "; ".join(f"{v.pointer.lstrip('/').replace('/', '.') or 'body'}: {v.detail}" for v in violations)
    return InvalidRequest(f"the request does not fit its schema: {detail}", code="invalid-request"), violations


def _sentence(error: Mapping[str, Any]) -> str:
    return _PLAIN.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")


def _class_of(error: TableStoreError) -> tuple[type[TableStoreError], tuple[int, str]]:
    for kind in type(error).__mro__:
        if kind in _CLASSES:
            return kind, _CLASSES[kind]
    raise AssertionError(f"{type(error)} is no TableStoreError")

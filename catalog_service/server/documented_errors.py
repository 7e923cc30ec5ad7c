"""Describes the errors of routes in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from catalog_service.wire.problems import MEDIA_TYPE

__all__ = ["problem", "problems", "problems_of_bodies"]

_EXAMPLES: dict[int, tuple[str, str, str, str]] = {
    400: ("invalid-request", "The request is wrong", "bad-name", "database name 'my shop' is not allowed: …"),
    401: ("invalid-request", "The request is wrong", "token-missing", "this service requires a token: …"),
    404: ("not-found", "Not found", "table-not-found", "there is no table 'orders' in database 'shop': …"),
    408: ("invalid-request", "The request is wrong", "body-too-slow", "the request's body did not arrive …"),
    409: ("already-exists", "Already exists", "table-exists", "table 'orders' exists already: …"),
    413: ("invalid-request", "The request is wrong", "body-too-large", "the request's body is larger than …"),
    500: (
        "corrupt",
        "Stored data is damaged",
        "table-files-missing",
        "the catalog has table shop.orders, and …",
    ),
    501: ("unsupported", "Not supported", "kafka-transaction-timeout", "the broker's limit would abort …"),
    503: ("unavailable", "Unavailable", "catalog-locked", "the catalog is locked by another process: …"),
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route: the given statuses, and those of every route."""
    return {status: problem(status) for status in sorted({*statuses, 401, 500, 503})}


def problems_of_bodies(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route whose requests have bodies."""
    return problems(*statuses, 400, 408, 413)


def problem(status: int) -> dict[str, Any]:
    """Describes one status with an example."""
    kind, title, code, detail = _EXAMPLES[status]
    example = {
        "type": f"urn:tablestore:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": "/api/v1/databases/shop",
        "code": code,
    }
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
    return {"description": title, "content": {MEDIA_TYPE: content}}

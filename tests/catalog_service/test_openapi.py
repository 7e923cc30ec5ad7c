"""The description of the API is complete: a program can be written from it alone."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from catalog_service.server.app import create_app
from catalog_service.use_cases.opening import open_service

# What the API promises: change it here on purpose, or not at all.
ROUTES = {
    "GET /api/v1/health": ({200}, set()),
    "GET /api/v1/ready": ({200, 503}, set()),
    "GET /api/v1/config": ({200}, set()),
    "GET /api/v1/databases": ({200, 400}, {"page_size", "page_token"}),
    "POST /api/v1/databases": ({200, 201, 400, 409}, {"if_not_exists"}),
    "GET /api/v1/databases/{database}": ({200, 400, 404}, {"database"}),
    "DELETE /api/v1/databases/{database}": ({204, 400, 404, 409}, {"database", "if_exists", "cascade"}),
    "GET /api/v1/databases/{database}/tables": ({200, 400, 404}, {"database", "page_size", "page_token"}),
    "POST /api/v1/databases/{database}/tables": (
        {200, 201, 400, 404, 409, 501},
        {"database", "if_not_exists", "staged"},
    ),
    "POST /api/v1/databases/{database}/tables/{table}/rename": ({200, 400, 404, 409}, {"database", "table"}),
    "GET /api/v1/databases/{database}/views": ({200, 400, 404}, {"database", "page_size", "page_token"}),
    "POST /api/v1/databases/{database}/views": (
        {200, 201, 400, 404, 409},
        {"database", "if_not_exists", "or_replace"},
    ),
    "GET /api/v1/databases/{database}/views/{view}": ({200, 400, 404}, {"database", "view"}),
    "DELETE /api/v1/databases/{database}/views/{view}": ({204, 400, 404}, {"database", "view", "if_exists"}),
    "POST /api/v1/databases/{database}/views/{view}/rename": ({200, 400, 404, 409}, {"database", "view"}),
    "GET /api/v1/databases/{database}/tables/{table}": ({200, 400, 404}, {"database", "table", "snapshot"}),
    "PATCH /api/v1/databases/{database}/tables/{table}": ({200, 400, 404, 409, 501}, {"database", "table"}),
    "DELETE /api/v1/databases/{database}/tables/{table}": (
        {204, 400, 404},
        {"database", "table", "if_exists"},
    ),
    "GET /api/v1/databases/{database}/tables/{table}/snapshots": (
        {200, 400, 404, 501},
        {"database", "table", "page_size", "page_token"},
    ),
    "GET /api/v1/databases/{database}/tables/{table}/commits": ({200, 400, 404}, {"database", "table", "table_id"}),
    "POST /api/v1/databases/{database}/tables/{table}/commits": ({200, 400, 404}, {"database", "table"}),
    "PUT /api/v1/databases/{database}/tables/{table}/commits": ({200, 400, 404}, {"database", "table"}),
    "POST /api/v1/databases/{database}/tables/{table}/lease": ({200, 400, 404, 409}, {"database", "table"}),
    "PUT /api/v1/databases/{database}/tables/{table}/lease": ({200, 400, 404, 409}, {"database", "table"}),
    "DELETE /api/v1/databases/{database}/tables/{table}/lease": ({204, 400, 404}, {"database", "table", "owner"}),
}
OF_EVERY_ROUTE = {401, 500, 503}
OF_BODIES = {408, 413}
OPEN = ("GET /api/v1/health", "GET /api/v1/ready")


@pytest.fixture
def document(tmp_path) -> dict[str, Any]:
    service = open_service(str(tmp_path), f"sqlite:///{tmp_path}/catalog.db")
    yield create_app(service).openapi()
    service.close()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_routes_statuses_and_parameters(document: dict[str, Any]) -> None:
    found = operations(document)
    assert set(found) == set(ROUTES)
    for name, (statuses, parameters) in ROUTES.items():
        expected = statuses if name in OPEN else statuses | OF_EVERY_ROUTE
        expected |= OF_BODIES if name.startswith(("POST", "PUT", "PATCH")) else set()
        assert {int(s) for s in found[name]["responses"]} == expected, name
        assert {p["name"] for p in found[name].get("parameters", ())} == parameters, name


@pytest.mark.parametrize("token", [None, "t"])
def test_it_says_which_routes_require_the_token(tmp_path, token: str | None) -> None:
    service = open_service(str(tmp_path), f"sqlite:///{tmp_path}/catalog.db")
    document = create_app(service, token).openapi()
    service.close()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for name, operation in operations(document).items():
        guarded = token is not None and name not in OPEN
        assert operation["security"] == ([{"bearer": []}] if guarded else []), name


def test_every_route_is_described(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        assert operation["summary"], name
        assert operation["description"], name
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], (name, parameter["name"])


def test_every_error_is_a_problem_document_with_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        for status, response in operation["responses"].items():
            if int(status) < 400:
                continue
            content = response["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, name
            assert content["example"]["status"] == int(status), name
            assert content["example"]["code"], name


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        bodies = [r["content"] for s, r in operation["responses"].items() if s in ("200", "201")]
        bodies += [operation["requestBody"]["content"]] if "requestBody" in operation else []
        for body in bodies:
            schema = document["components"]["schemas"][ref(body["application/json"]["schema"])]
            assert has_example(schema, document), (name, schema["title"])


def ref(schema: dict[str, Any]) -> str:
    return schema["$ref"].rpartition("/")[2]


def has_example(schema: dict[str, Any], document: dict[str, Any]) -> bool:
    """Its own, or one of each of its members."""
    if "examples" in schema:
        return True
    if "$ref" in schema:
        return has_example(document["components"]["schemas"][ref(schema)], document)
    if schema.get("type") == "array":
        return has_example(schema["items"], document)
    members = schema.get("properties", {}).items()
    return bool(members) and all(
        has_example(member, document) or "default" in member or "const" in member or name == "next_page_token"
        for name, member in members
    )


def test_no_reference_leads_nowhere(document: dict[str, Any]) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                assert ref(value) in document["components"]["schemas"]
            for member in value.values():
                walk(member)
        elif isinstance(value, list):
            for member in value:
                walk(member)

    walk(document)


@pytest.mark.slow
def test_it_is_served(url: str) -> None:
    served = httpx.get(f"{url}/openapi.json", trust_env=False).json()
    assert served["openapi"].startswith("3.1")
    assert set(operations(served)) == set(ROUTES)


@pytest.mark.slow
def test_the_examples_of_requests_work(document: dict[str, Any], api: httpx.Client) -> None:
    schemas = document["components"]["schemas"]
    for example in schemas["CreateDatabase"]["examples"]:
        assert api.post("/databases", json=example).status_code == 201
    for example in schemas["CreateTable"]["examples"]:
        connector = "connector" in example.get("options", {})
        if connector:
            example["options"]["topic.check"] = "false"  # its broker is nowhere
        made = api.post("/databases/shop/tables", json=example)
        assert made.status_code == 201, made.text
        for changes in schemas["AlterTable"]["examples"] if not connector else ():
            altered = api.patch(f"/databases/shop/tables/{example['name']}", json=changes)
            assert altered.status_code == 200, altered.text
        api.delete(f"/databases/shop/tables/{example['name']}").raise_for_status()

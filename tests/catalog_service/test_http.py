"""The REST conventions, spoken as plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from catalog_service.server import serving
from filestore.commit.proposal import Proposal
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.catalog_service.faults import AMBIENT

ORDERS = {"name": "orders", "schema": "id BIGINT, name STRING", "primary_key": ["id"], "options": {"bucket": 2}}


@pytest.fixture
def shop(api: httpx.Client) -> httpx.Client:
    api.post("/databases", json={"name": "shop"}).raise_for_status()
    api.post("/databases/shop/tables", json=ORDERS).raise_for_status()
    return api


def problem(response: httpx.Response, status: int, code: str) -> dict[str, object]:
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    assert set(body) >= {"type", "title", "status", "detail", "instance", "code"}
    assert body["instance"] == response.request.url.path
    return body


def test_created_is_201_with_a_location(api: httpx.Client) -> None:
    made = api.post("/databases", json={"name": "Shop", "comment": "c"})
    assert (made.status_code, made.headers["location"]) == (201, "/api/v1/databases/shop")
    assert api.get("/databases/shop").json() == made.json()
    table = api.post("/databases/shop/tables", json=ORDERS)
    assert (table.status_code, table.headers["location"]) == (201, "/api/v1/databases/shop/tables/orders")
    assert api.get("/databases/shop/tables/orders").json() == table.json()


def test_taken_names(shop: httpx.Client) -> None:
    problem(shop.post("/databases", json={"name": "shop"}), 409, "database-exists")
    problem(shop.post("/databases/shop/tables", json=ORDERS), 409, "table-exists")
    flag = {"if_not_exists": "true"}
    again = shop.post("/databases", json={"name": "shop"}, params=flag)
    assert (again.status_code, again.json()["name"]) == (200, "shop")
    assert "location" not in again.headers
    assert shop.post("/databases/shop/tables", json=ORDERS, params=flag).status_code == 200


@pytest.mark.slow
def test_missing_names(shop: httpx.Client) -> None:
    problem(shop.get("/databases/bank"), 404, "database-not-found")
    problem(shop.get("/databases/bank/tables"), 404, "database-not-found")
    problem(shop.get("/databases/bank/tables/orders"), 404, "database-not-found")
    problem(shop.post("/databases/bank/tables", json=ORDERS), 404, "database-not-found")
    problem(shop.get("/databases/shop/tables/items"), 404, "table-not-found")
    problem(shop.get("/databases/shop/tables/items/snapshots"), 404, "table-not-found")
    problem(shop.delete("/databases/shop/tables/items"), 404, "table-not-found")
    problem(shop.delete("/databases/bank"), 404, "database-not-found")
    for path in ("/databases/shop/tables/items", "/databases/bank", "/databases/bank/tables/items"):
        assert shop.delete(path, params={"if_exists": True}).status_code == 204


def test_drops(shop: httpx.Client) -> None:
    problem(shop.delete("/databases/shop"), 409, "database-not-empty")
    gone = shop.delete("/databases/shop/tables/orders")
    assert (gone.status_code, gone.content) == (204, b"")
    assert shop.delete("/databases/shop").status_code == 204


def test_cascade(shop: httpx.Client) -> None:
    assert shop.delete("/databases/shop", params={"cascade": True}).status_code == 204
    problem(shop.get("/databases/shop"), 404, "database-not-found")


def test_bad_names_in_paths(api: httpx.Client) -> None:
    problem(api.get("/databases/My%20Shop"), 400, "bad-name")
    problem(api.get("/databases/shop/tables/a.b"), 400, "bad-name")
    problem(api.delete("/databases/a-b", params={"if_exists": True}), 400, "bad-name")


def test_what_http_itself_refuses(api: httpx.Client, url: str) -> None:
    problem(api.get("/nothing"), 404, "no-such-path")
    problem(api.get("/databases/"), 404, "no-such-path")
    problem(httpx.get(f"{url}/", trust_env=False, timeout=60), 404, "no-such-path")
    refused = api.put("/databases", json={})
    problem(refused, 405, "method-not-allowed")
    assert "GET" in refused.headers["allow"]


@pytest.mark.parametrize(
    ("content", "media", "words"),
    [
        ("{", "application/json", "not valid JSON"),
        ("[]", "application/json", "must be a JSON object"),
        ('{"name": "x"}', "text/plain", "Content-Type: application/json"),
        ("", "application/json", "required"),
    ],
)
def test_bodies_that_are_no_json_object(api: httpx.Client, content: str, media: str, words: str) -> None:
    response = api.post("/databases", content=content, headers={"Content-Type": media})
    assert words in str(problem(response, 400, "invalid-request")["detail"])


@pytest.mark.parametrize("query", ["page_size=0", "page_size=1001", "page_size=many", "if_not_exists=perhaps"])
def test_bad_queries(api: httpx.Client, query: str) -> None:
    call = api.post if "exists" in query else api.get
    arguments = {"json": {"name": "x"}} if "exists" in query else {}
    found = problem(call(f"/databases?{query}", **arguments), 400, "invalid-request")
    assert query.partition("=")[0] in str(found["detail"])


def test_snapshots_are_newest_first_and_paged(shop: httpx.Client) -> None:
    location = shop.get("/databases/shop/tables/orders").json()["location"]
    write_versions(location, 4)
    path = "/databases/shop/tables/orders/snapshots"
    assert [s["version"] for s in shop.get(path).json()["snapshots"]] == [4, 3, 2, 1, 0]

    first = shop.get(path, params={"page_size": 2}).json()
    assert [s["version"] for s in first["snapshots"]] == [4, 3]
    write_versions(location, 2)
    second = shop.get(path, params={"page_size": 2, "page_token": first["next_page_token"]}).json()
    assert [s["version"] for s in second["snapshots"]] == [2, 1]
    last = shop.get(path, params={"page_size": 2, "page_token": second["next_page_token"]}).json()
    assert [s["version"] for s in last["snapshots"]] == [0]
    assert last["next_page_token"] is None
    assert last["snapshots"][0]["operation"] == "CREATE TABLE"

    current = shop.get("/databases/shop/tables/orders").json()["current_snapshot"]
    assert current["version"] == 6
    assert shop.get("/databases/shop/tables/orders?snapshot=false").json()["current_snapshot"] is None


def write_versions(location: str, count: int) -> None:
    store = FileStore.open(LocalStorage(), location, AMBIENT)
    for _ in range(count):
        base = store.state()
        proposal = Proposal(Operation.WRITE, AMBIENT.new_id(), base.version)
        store.commit_version(base, proposal, lambda proposal, state, slots: proposal)


def test_a_page_token_of_another_list(shop: httpx.Client) -> None:
    shop.post("/databases", json={"name": "bank"}).raise_for_status()
    token = shop.get("/databases", params={"page_size": 1}).json()["next_page_token"]
    for path in ("/databases/shop/tables", "/databases/shop/tables/orders/snapshots"):
        problem(shop.get(path, params={"page_token": token}), 400, "bad-page-token")
    for bad in ("x", "AAAA", "%00", "ä", token + "A", token[:-2], "x" * 10_000):
        problem(shop.get("/databases", params={"page_token": bad}), 400, "bad-page-token")


def test_config_and_health(api: httpx.Client, warehouse: str) -> None:
    assert api.get("/health").json() == {"status": "ok"}
    config = api.get("/config").json()
    assert config["warehouse"] == warehouse
    assert "POST /api/v1/databases/{database}/tables" in config["endpoints"]
    assert (config["page_size"], config["page_size_max"]) == (100, 1000)


# ---------------------------------------------------------------------------------------------- token


@pytest.fixture
def guarded(warehouse: str) -> Iterator[httpx.Client]:
    with (
        serving(warehouse, token="open sesame") as url,
        httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=60) as client,
    ):
        yield client


def test_a_token_is_wanted(guarded: httpx.Client) -> None:
    for header in ({}, {"Authorization": "Basic b3BlbiBzZXNhbWU="}, {"Authorization": "Bearer"}):
        response = guarded.get("/databases", headers=header)
        problem(response, 401, "token-missing")
        assert response.headers["www-authenticate"].startswith("Bearer")
    problem(guarded.post("/databases", json={"name": "x"}), 401, "token-missing")
    wrong = guarded.get("/databases", headers={"Authorization": "Bearer x"})
    problem(wrong, 401, "token-wrong")
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
    problem(guarded.get("/no/such/path"), 401, "token-missing")
    good = {"Authorization": "bearer open sesame"}
    assert guarded.get("/databases", headers=good).json()["databases"] == []


def test_health_and_openapi_require_no_token(guarded: httpx.Client) -> None:
    for path in ("/health", "/ready"):
        assert guarded.get(path).json() == {"status": "ok"}
    root = str(guarded.base_url).removesuffix("/api/v1/")
    assert json.loads(httpx.get(f"{root}/openapi.json", trust_env=False, timeout=60).content)["openapi"].startswith(
        "3."
    )


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
def test_no_page_of_the_service_loads_scripts_from_elsewhere(url: str, path: str) -> None:
    assert httpx.get(url + path, trust_env=False, timeout=60).status_code == 404


def test_requests_are_measured_by_their_templates(shop: httpx.Client, url: str) -> None:
    for name in ("orders", "orders", "nothing"):
        shop.get(f"/databases/shop/tables/{name}")
    httpx.get(f"{url}/nowhere/at/all", trust_env=False, timeout=60)
    answer = httpx.get(f"{url}/metrics", trust_env=False, timeout=60)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    path = "/api/v1/databases/{database}/tables/{table}"
    for method, template, status, count in (
        ("GET", path, 200, 2),
        ("GET", path, 404, 1),
        ("POST", "/api/v1/databases/{database}/tables", 201, 1),
        ("GET", "<none>", 404, 1),
    ):
        labels = f'method="{method}",path="{template}",status="{status}"'
        assert f"tablestore_catalog_requests_total{{{labels}}} {count}.0\n" in answer.text
    assert f'_request_duration_seconds_count{{method="GET",path="{path}"}} 3.0\n' in answer.text
    assert "orders" not in answer.text

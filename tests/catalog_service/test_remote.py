"""The HTTP client: errors arrive unchanged, reads are repeated, changes are not, and other servers are refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from catalog_service.client import CreateTable, EmbeddedCatalog, connect
from catalog_service.client.remote import HttpCatalog
from catalog_service.server import serving
from catalog_service.wire import problems
from filestore import errors
from filestore.ambient import Ambient
from filestore.errors import Corrupt, InvalidRequest, TableStoreError, Unavailable, Unsupported
from tests.catalog_service.faults import AMBIENT

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 31\r\nConnection: close\r\n\r\n"
EMPTY += b'{"databases": [], "x": "12345"}'


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_survives_the_wire(name: str) -> None:
    kind = getattr(errors, name)
    error = kind("what to do", code="a-code")
    problem = problems.problem_of(error, "/api/v1/x")
    back = problems.error_of(type(problem).model_validate_json(problem.model_dump_json()))
    assert (type(back), back.message, back.code) == (kind, "what to do", "a-code")


def test_a_subclass_travels_as_its_class() -> None:
    class Finer(Corrupt):
        default_code = "finer"

    assert type(problems.error_of(problems.problem_of(Finer("x"), "/"))) is Corrupt


def test_a_problem_of_a_newer_service_keeps_its_status() -> None:
    problem = problems.problem_of(errors.NotFound("gone"), "/").model_copy(update={"type": "urn:new"})
    assert type(problems.error_of(problem)) is errors.NotFound
    assert type(problems.error_of(problem.model_copy(update={"status": 418}))) is TableStoreError


def test_statuses() -> None:
    names = ["InvalidRequest", "NotFound", "AlreadyExists", "Conflict", "Unsupported", "Unavailable", "Corrupt"]
    statuses = [problems.problem_of(getattr(errors, name)(""), "/").status for name in names]
    assert statuses == [400, 404, 409, 409, 501, 503, 500]
    assert problems.problem_of(errors.CommitUnknown(""), "/").status == 503


# ---------------------------------------------------------------------------------------------- no answer


class Counting:
    """An ambient that counts its sleeps, which take no time."""

    def __init__(self) -> None:
        self.sleeps = 0

    def ambient(self) -> Ambient:
        return Ambient(AMBIENT.now_ms, AMBIENT.new_id, AMBIENT.chance, self._sleep)

    def _sleep(self, _: float) -> None:
        self.sleeps += 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_nobody_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    counting = Counting()
    with HttpCatalog(url, ambient=counting.ambient()) as catalog:
        for call in (catalog.list_databases, lambda: catalog.create_database("shop")):
            with pytest.raises(Unavailable, match="tablestore serve") as caught:
                call()
            assert caught.value.code == "catalog-unreachable"
            assert url in caught.value.message
    assert counting.sleeps == 2  # of the read alone


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Runs a server that gives each connection one answer and closes it; yields the requests that arrived."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return  # the test has ended, and closed the listener
                with connection:
                    requests.append(connection.recv(65536))
                    if answer:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # which wakes a thread that still waits for a connection
            thread.join(10)


def test_a_read_is_repeated() -> None:
    counting = Counting()
    with (
        answering(b"", b"", EMPTY) as (url, requests),
        HttpCatalog(url, ambient=counting.ambient()) as catalog,
    ):
        assert catalog.list_databases() == []
    assert (len(requests), counting.sleeps) == (3, 2)


def test_a_change_is_not_repeated() -> None:
    with answering(b"", EMPTY) as (url, requests), connect(url) as catalog:
        with pytest.raises(Unavailable, match="if_not_exists") as caught:
            catalog.create_table("shop", CreateTable.of("orders", "id INT"))
        assert caught.value.code == "reply-lost"
        assert len(requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 404 X\r\nContent-Type: application/problem+json\r\nContent-Length: 9\r\n\r\n{"a": "b"',
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/login\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["page", "not-found", "torn", "login"],
)
def test_a_stranger_at_the_address(answer: bytes) -> None:
    with answering(answer) as (url, _), connect(url) as catalog:
        with pytest.raises(Unavailable, match=r"is .* the address of one") as caught:
            catalog.list_databases()
        assert caught.value.code == "not-a-catalog"


def test_an_internal_error_is_reported_without_its_details(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("catalog_service.use_cases.service.CatalogService.list_databases", fail)
    with serving(warehouse) as url, connect(url) as catalog:
        with pytest.raises(TableStoreError, match="its log has the reason") as caught:
            catalog.list_databases()
        assert (type(caught.value), caught.value.code) == (TableStoreError, "internal-error")
    assert "a secret" in capfd.readouterr().err


# ---------------------------------------------------------------------------------------------- connect


def test_targets(warehouse: str) -> None:
    with connect("http://127.0.0.1:1/") as remote:
        assert isinstance(remote, HttpCatalog)
        assert remote.url == "http://127.0.0.1:1"
    for target in (warehouse, f"file://{warehouse}"):
        with connect(target) as embedded:
            assert isinstance(embedded, EmbeddedCatalog)
            embedded.create_database("shop", if_not_exists=True)
            assert embedded.list_databases() == ["shop"]


def test_another_database(warehouse: str, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/other/the.db"
    with connect(warehouse, database=url) as catalog:
        catalog.create_database("shop")
    assert (tmp_path / "other" / "the.db").exists()
    with connect(warehouse, database=url) as catalog:
        assert catalog.list_databases() == ["shop"]


def test_targets_that_are_refused() -> None:
    for target, database, kind, code in (
        ("http://", None, InvalidRequest, "bad-url"),
        ("http://host:port", None, InvalidRequest, "bad-url"),
        ("http://127.0.0.1:1", "sqlite:///x.db", InvalidRequest, "not-with-a-service"),
        ("s3://bucket/warehouse", None, InvalidRequest, "database-needed"),
    ):
        with pytest.raises(kind) as caught:
            connect(target, database=database)
        assert caught.value.code == code


@pytest.mark.parametrize(
    "url",
    ["http://ann:planted@host", "https://planted@host:8080", "http://host?token=planted", "http://host/#planted"],
)
def test_a_url_with_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"pass a token as such, or in \$TABLESTORE_TOKEN") as caught:
        connect(url)
    assert caught.value.code == "bad-url"
    assert "planted" not in repr(caught.value)


def test_a_scheme_that_nobody_knows(tmp_path) -> None:
    with (
        connect("unknown://bucket/warehouse", database=f"sqlite:///{tmp_path}/the.db") as catalog,
        pytest.raises(Unsupported, match="no file system for unknown://") as caught,
    ):
        catalog.create_database("shop")
    assert caught.value.code == "storage-package"


def test_a_token_is_sent(warehouse: str) -> None:
    with serving(warehouse, token="t") as url:
        with connect(url, token="t") as catalog:
            assert catalog.list_databases() == []
        for token, code in ((None, "token-missing"), ("u", "token-wrong")):
            with connect(url, token=token) as catalog, pytest.raises(InvalidRequest) as caught:
                catalog.list_databases()
            assert caught.value.code == code

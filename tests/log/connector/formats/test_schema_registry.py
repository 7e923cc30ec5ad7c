"""The registry's client against a small registry that speaks HTTP on loopback."""

from __future__ import annotations

import base64
import json
import pickle
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
import trustme

from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable
from log.connector.formats.avro.schema_registry import SchemaRegistry
from log.connector.formats.format import Role
from log.connector.formats.opening import open_format


class Server(ThreadingHTTPServer):
    """Subjects, schemas and numbers; what it was asked; an answer to give instead."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.answer: tuple[int, bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = unquote(self.path.removeprefix("/subjects/").removesuffix("/versions"))
        number = 100 + len(self.server.schemas)
        self.server.schemas[number] = body
        self.server.subjects.setdefault(subject, []).append(number)
        self._reply({"id": number})

    def do_GET(self) -> None:
        if self.path.startswith("/subjects/"):
            found = self.server.versions.get(unquote(self.path.removeprefix("/subjects/")))
        else:
            found = self.server.schemas.get(int(self.path.rpartition("/")[2]))
        self._reply(found or {"error_code": 40403, "message": "Schema not found"}, 200 if found else 404)

    def _reply(self, document: Any, status: int = 200) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        status, body = self.server.answer or (status, json.dumps(document).encode())
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_schemas_are_registered_once_and_fetched_once(server: Server) -> None:
    writer, reader = SchemaRegistry(server.url), SchemaRegistry(server.url)
    number = writer.register("shop/ü orders-value", '"long"')
    assert writer.register("shop/ü orders-value", '"long"') == number
    assert reader.schema(number) == reader.schema(number) == ('"long"',)
    assert server.subjects == {"shop/ü orders-value": [number]}
    assert [method for method, _, _ in server.asked] == ["POST", "GET"]


def test_rows_survive_by_the_table_s_options(server: Server) -> None:
    schema = pa.schema([("id", pa.int64())])
    format_ = open_format("avro-confluent", schema, {"url": server.url + "/"}, Role.KEY, topic="orders")
    again = pickle.loads(pickle.dumps(format_))
    assert again.decode(format_.encode(pa.table({"id": [1, None]}))).rows["id"].to_pylist() == [1, None]
    assert list(server.subjects) == ["orders-key"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"basic-auth.user-info": "me:a:b"}, "Basic " + base64.b64encode(b"me:a:b").decode()),
        ({"bearer-auth.token": "abc"}, "Bearer abc"),
    ],
)
def test_credentials(server: Server, options: dict[str, str], expected: str | None) -> None:
    options = {"url": server.url, "subject": "s", **options}
    open_format("avro-confluent", pa.schema([("id", pa.int64())]), options, Role.VALUE).encode(pa.table({"id": [1]}))
    assert [header for _, _, header in server.asked] == [expected]


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, b"", InvalidRequest, "basic-auth.user-info"),
        (403, b"", InvalidRequest, "lacks the right"),
        (409, b'{"message":"reader field missing"}', InvalidRequest, "reader field missing; the columns' schema"),
        (422, b'{"message":"bad"}', InvalidRequest, "none that it takes"),
        (429, b"", Unavailable, "try again later"),
        (500, b"", Unavailable, "HTTP 500"),
        (200, b"<html>", InvalidRequest, "look at avro-confluent.url"),
        (302, b"", InvalidRequest, "look at avro-confluent.url"),
    ],
)
def test_refusals(server: Server, status: int, body: bytes, error: type[TableStoreError], words: str) -> None:
    server.answer = (status, body)
    with pytest.raises(error, match=words) as caught:
        SchemaRegistry(server.url).register("s", '"long"')
    assert caught.value.code == "schema-registry"


def test_a_schema_that_refers_to_others(server: Server) -> None:
    """Types of other subjects by their names: two of them use a third, which is asked for once."""

    def refers(*names: str) -> list[dict[str, Any]]:
        return [{"name": f"a.{name}", "subject": f"a/{name}", "version": 2} for name in names]

    def record(name: str, **fields: str) -> str:
        own = [{"name": field, "type": kind} for field, kind in fields.items()]
        return json.dumps({"type": "record", "namespace": "a", "name": name, "fields": own})

    server.versions["a/Money/versions/2"] = {"schema": record("Money", cents="long")}
    server.versions["a/Net/versions/2"] = {"schema": record("Net", m="Money"), "references": refers("Money")}
    server.versions["a/Tax/versions/2"] = {"schema": record("Tax", m="a.Money"), "references": refers("Money")}
    server.schemas[9] = {"schema": record("Order", net="Net", tax="Tax"), "references": refers("Net", "Tax")}
    money = pa.struct([("m", pa.struct([("cents", pa.int64())]))])
    schema = pa.schema([("net", money), ("tax", money)])
    format_ = open_format("avro-confluent", schema, {"url": server.url}, Role.VALUE, topic="t")
    rows = format_.decode([b"\0\0\0\0\x09\x02\x04"]).rows
    assert rows.select(schema.names).to_pylist() == [{"net": {"m": {"cents": 1}}, "tax": {"m": {"cents": 2}}}]
    assert len(server.asked) == 4

    del server.versions["a/Money/versions/2"]
    with pytest.raises(NotFound, match="version 2 of subject a/Money"):
        SchemaRegistry(server.url).schema(9)


def test_an_unknown_schema_makes_its_messages_malformed(server: Server) -> None:
    with pytest.raises(NotFound, match="Schema not found"):
        SchemaRegistry(server.url).schema(7)
    format_ = open_format("avro-confluent", pa.schema([("id", pa.int64())]), {"url": server.url}, Role.VALUE, topic="t")
    (bad,) = format_.decode([b"\0\0\0\0\7\2\2"]).malformed
    assert "schema 7" in bad.reason
    server.schemas[8] = {"schema": "syntax…", "schemaType": "PROTOBUF"}
    (bad,) = format_.decode([b"\0\0\0\0\x08\2\2"]).malformed
    assert "is PROTOBUF" in bad.reason


def test_the_next_server_is_asked_if_one_does_not_answer(server: Server) -> None:
    with Server() as closed:
        gone = closed.url
    registry = SchemaRegistry(f"{gone}, {server.url}")
    assert registry.schema(registry.register("s", '"int"')) == ('"int"',)
    with pytest.raises(Unavailable, match="does not answer"):
        SchemaRegistry(gone).schema(1)


def test_an_authority_of_its_own(server: Server, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    trusting = SchemaRegistry(url, ca_location=str(tmp_path / "ca.pem"))
    assert trusting.schema(trusting.register("s", '"long"')) == ('"long"',)
    with pytest.raises(Unavailable, match=r"the schema registry does not answer: .*certificate verify failed"):
        SchemaRegistry(url).register("s", '"int"')


def test_secrets_are_not_shown(server: Server) -> None:
    assert "hush" not in repr(SchemaRegistry(server.url, "me:hush", "hush"))

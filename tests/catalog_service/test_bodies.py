"""The bodies of requests are limited before they are parsed: their size, their depth, and how slowly they arrive."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.server.bodies import BODY_BYTES_MAX, JSON_DEPTH_MAX, BoundedBodies, json_depth

JSON = {"Content-Type": "application/json"}


def problem(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


def padded(size: int) -> bytes:
    body = json.dumps({"name": "shop"}).encode()
    return body + b" " * (size - len(body))


def test_a_body_of_a_megabyte_is_taken_and_more_is_not(api: httpx.Client) -> None:
    assert problem(api.post("/databases", content=padded(BODY_BYTES_MAX + 1), headers=JSON)) == (413, "body-too-large")
    assert api.get("/databases").json()["databases"] == []
    assert api.post("/databases", content=padded(BODY_BYTES_MAX), headers=JSON).status_code == 201


@pytest.mark.parametrize("path", ["/databases", "/no/such/path"])
def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_long(url: str, path: str) -> None:
    """The client never ends it: the answer comes all the same."""
    address = url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=30) as client:
        head = f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        client.sendall(chunk * (BODY_BYTES_MAX // 0x10000 + 1))
        answer = b""
        while b"body-too-large" not in answer:
            more = client.recv(65536)
            assert more, answer
            answer += more
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer.lower()


def test_a_length_that_is_no_number_is_refused_by_the_server(url: str) -> None:
    address = url.removeprefix("http://").split(":")
    for length in ("-1", "9" * 5000, "1e9", "+5"):
        with socket.create_connection((address[0], int(address[1])), timeout=30) as client:
            client.sendall(f"POST /api/v1/databases HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
            assert client.recv(65536).split()[1] in (b"400", b"413"), length


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        ("GET /", b"a"),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A: ", b"a"),
        ("GET / HTTP/1.1\r\nHost: x\r\n", b"X-A: a\r\n"),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: a\r\n"),
        ("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a=b;"),
    ],
)
def test_headers_and_trailers_have_a_bound(url: str, begin: str, more: bytes) -> None:
    """The client sends until it is cut off."""
    address = url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=30) as client:
        client.sendall(begin.encode())
        with pytest.raises(OSError):
            for _ in range(1000):
                client.sendall(more * 20_000)
    assert httpx.get(f"{url}/api/v1/health", trust_env=False).status_code == 200


def test_a_long_header_gets_an_answer(url: str) -> None:
    address = url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=30) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-A: ")
        with suppress(OSError):  # cut off while it sends
            for _ in range(4):
                client.sendall(b"a" * 70_000)
        answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"head-too-large" in answer


def test_a_body_in_chunks_of_one_byte_is_taken(api: httpx.Client) -> None:
    body = json.dumps({"name": "shop", "comment": "c" * 3_000})
    made = api.post("/databases", content=(c.encode() for c in body), headers=JSON)
    assert made.status_code == 201, made.text


def test_deep_json_is_refused(api: httpx.Client) -> None:
    for depth, codes in ((JSON_DEPTH_MAX + 1, "body-too-deep"), (JSON_DEPTH_MAX, "invalid-request")):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            text = f'{{"name": "x", "comment": {opening * (depth - 1)}1{closing * (depth - 1)}}}'
            assert problem(api.post("/databases", content=text, headers=JSON)) == (400, codes)
    endless = "[" * (BODY_BYTES_MAX - 1)
    assert problem(api.post("/databases", content=endless, headers=JSON)) == (400, "body-too-deep")
    quotes = '"' + '\\"' * (BODY_BYTES_MAX // 2 - 20) + "[" * 33
    assert problem(api.post("/databases", content=quotes, headers=JSON))[0] == 400


_TEXTS = st.text(alphabet='[]{}"\\ab\x00é') | st.text()
_VALUES = st.recursive(
    st.none() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    inner = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(_VALUES, st.booleans())
def test_depth_is_that_of_the_parsed_value(value: Any, ascii_only: bool) -> None:
    many = [value] * (JSON_DEPTH_MAX + 1)  # so many brackets that they are counted
    many = [many] if depth_of(value) == 0 else many
    nested = [[] for _ in range(JSON_DEPTH_MAX)]
    body = json.dumps([many, nested], ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert json_depth(body) == depth_of([many, nested])


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    sent: list[dict[str, Any]] = []

    async def nobody(*_: Any) -> None:
        raise AssertionError("no body, no request")

    def parts() -> Iterator[dict[str, Any]]:
        yield {"type": "http.request", "body": b"{", "more_body": True}

    async def main() -> None:
        given = parts()

        async def receive() -> Any:
            if (part := next(given, None)) is None:
                await asyncio.Event().wait()
            return part

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
        await BoundedBodies(nobody, seconds=0.01)(scope, receive, send)

    asyncio.run(main())
    assert sent[0]["status"] == 408
    assert b"body-too-slow" in sent[1]["body"]

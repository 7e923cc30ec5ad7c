"""Whoever reaches the port can open connections and say nothing, or little, or read nothing: others are served."""

from __future__ import annotations

import re
import resource
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

import catalog_service.server.heads as heads
from catalog_service.client import connect
from catalog_service.server import serving
from catalog_service.server.connections import UNKNOWN_MAX, Connection, Connections, most_connections, network_of

FILES = 400
"""The limit of open files of the service under test: the same happens with 1,024, and takes longer."""
MOST = 144
"""The most connections that it takes then."""
RUN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from catalog_service.server import Settings, run
run(sys.argv[1], Settings(port=0, token="t", log_level="error"))
"""


@contextmanager
def service(warehouse: str) -> Iterator[int]:
    """A service with few files, in a process of its own; yields its port."""
    command = [sys.executable, "-c", RUN, warehouse, str(FILES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)", running.stdout.readline())
            assert found is not None
            yield int(found[1])
        finally:
            running.kill()


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Lets this process open so many files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < count:
        pytest.skip(f"this process may open {before[1]} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], count), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 40])
def test_a_thousand_silent_connections_keep_nobody_out(warehouse: str, hosts: int) -> None:
    """From one address, and from so many that each has few."""
    with many_files(1500), service(warehouse) as port, ExitStack() as stack:
        kept = stack.enter_context(connect(f"http://127.0.0.1:{port}", token="t"))
        for number in range(1050):
            silent = stack.enter_context(socket.socket())
            silent.bind((f"127.0.0.{2 + number % hosts}", 0))
            silent.settimeout(60)
            silent.connect(("127.0.0.1", port))
            if number % 3 == 0:
                with suppress(OSError):  # it was ended for others
                    silent.sendall(b"GET /api/v1/databases HTTP/1.1\r\nX-A: ")
            if number % 50 == 0:
                kept.list_databases()
                with connect(f"http://127.0.0.1:{port}", token="t") as fresh:
                    fresh.list_databases()


def test_only_the_oldest_without_a_token_are_ended(warehouse: str) -> None:
    with service(warehouse) as port, ExitStack() as stack:
        known = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False))
        known.headers["Authorization"] = "Bearer t"
        assert known.get("/databases").status_code == 200
        most = min(UNKNOWN_MAX, MOST // 2)
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(most)]
        late = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(5)]
        for ended in opened[:5]:
            assert ended.recv(1) == b"", "the oldest one was ended for a newer one"
        for served in (*opened[5:], *late):
            served.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        for served in (*opened[5:], *late):
            assert served.recv(100).startswith(b"HTTP/1.1 200")
        pool = known._transport._pool  # type: ignore[attr-defined]
        before = [connection.info() for connection in pool.connections]
        assert known.get("/databases").status_code == 200
        assert len(before) == len(pool.connections) == 1, "the same connection"


# --------------------------------------------------------------------------------------------------------- time limits


@contextmanager
def talking(warehouse: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Iterator[socket.socket]:
    """A connection to a service that is patient for a fifth of a second."""
    for name in ("HEAD_SECONDS_MAX", "WRITE_SECONDS_MAX"):
        monkeypatch.setattr(heads, name, 0.2)
    with serving(warehouse, token="t", **more) as url, connected(url) as client:
        yield client


def connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60)


def all_of(client: socket.socket) -> bytes:
    """What is sent until the connection is closed."""
    received = b""
    with suppress(ConnectionResetError):
        while more := client.recv(65536):
            received += more
    return received


def test_a_client_that_says_nothing_is_cut_off(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(warehouse, monkeypatch) as client:
        assert all_of(client) == b""


@pytest.mark.parametrize("begin", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /api/v1/health HTTP/1.1\r\nX-A: a"])
@pytest.mark.parametrize("trickles", [False, True])
def test_a_head_that_does_not_end_is_refused(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, begin: bytes, trickles: bool
) -> None:
    """Also if a byte comes now and then: the time is not counted anew."""
    with talking(warehouse, monkeypatch) as client:
        client.sendall(begin)
        received = trickled(client) if trickles else all_of(client)
        if begin == b"G" and trickles:
            assert received.startswith(b"HTTP/1.1 400 "), "there is no such method"
        else:
            assert received.startswith(b"HTTP/1.1 408 ")
            assert b"head-too-slow" in received


@pytest.mark.parametrize(
    "asked",
    [
        b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
        b"POST /api/v1/databases HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
        b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n\r\n",
    ],
)
def test_what_comes_behind_an_answer_is_not_waited_for(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, asked: bytes
) -> None:
    """The rest of a body that nobody reads, without a token, or empty lines."""
    with talking(warehouse, monkeypatch) as client:
        client.sendall(asked)
        assert trickled(client, b"\r\n").startswith((b"HTTP/1.1 200", b"HTTP/1.1 401"))


def trickled(client: socket.socket, piece: bytes = b"a") -> bytes:
    """Sends a piece whenever nothing comes for a moment; returns what is sent until the connection is closed."""
    received = b""
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        for _ in range(1000):
            if not selector.select(0.02):
                with suppress(OSError):
                    client.sendall(piece)
                continue
            try:
                more = client.recv(65536)
            except ConnectionResetError:
                return received
            if not more:
                return received
            received += more
    raise AssertionError("the connection stays open")


def test_a_request_that_is_being_answered_is_not_cut_off(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the next one is there already."""
    with talking(warehouse, monkeypatch) as client:
        body = b'{"name": "shop"}'
        head = b"POST /api/v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: 16\r\n"
        client.sendall(head + b"Content-Type: application/json\r\n\r\n" + body[:3])
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ)
            assert not selector.select(0.5), "a body has more time than a head"
        client.sendall(body[3:] + b"GET /api/v1/databases HTTP/1.1\r\n")
        received = all_of(client)
        assert received.startswith(b"HTTP/1.1 201 ")
        assert b"408 Request Timeout" in received


@pytest.mark.deep
def test_a_client_that_does_not_read_is_cut_off(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(warehouse, monkeypatch) as client, suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(100_000):
            client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        raise AssertionError("the connection stays open")


def test_a_handshake_that_does_not_end_is_cut_off(
    warehouse: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    monkeypatch.setattr("catalog_service.server.accepting.HEAD_SECONDS_MAX", 0.2)
    with talking(warehouse, monkeypatch, tls_cert=str(tmp_path / "both.pem")) as client:
        client.sendall(b"\x16\x03\x01")
        assert all_of(client) == b""


# --------------------------------------------------------------------------------------------------------------- heads


def test_a_head_of_seventy_kilobytes_is_refused_however_it_arrives(warehouse: str) -> None:
    with serving(warehouse) as url:
        for parts in (1, 3, 100):
            head = b"GET /api/v1/databases HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000 + b"\r\n\r\n"
            with connected(url) as client:
                size = -(-len(head) // parts)
                with suppress(OSError):  # cut off while it sends
                    for at in range(0, len(head), size):
                        client.sendall(head[at : at + size])
                received = all_of(client)
                assert received.startswith(b"HTTP/1.1 431 "), parts
                assert b"head-too-large" in received
        long = "a" * 60_000
        assert httpx.get(f"{url}/api/v1/databases", headers={"X-A": long}, trust_env=False).status_code == 200
        with connected(url) as client:
            client.sendall(b"GET /api/v1/databases?" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert all_of(client).startswith(b"HTTP/1.1 431 ")


def test_a_request_with_two_tokens_is_refused(warehouse: str) -> None:
    """Of two headers each server takes another one."""
    with serving(warehouse, token="t") as url:
        for given in (("t", "t"), ("t", "x"), ("x", "t")):
            headers = [("Authorization", f"Bearer {token}") for token in given]
            refused = httpx.get(f"{url}/api/v1/databases", headers=headers, trust_env=False)
            assert (refused.status_code, refused.json()["code"]) == (400, "repeated-header")


def test_head_is_get_without_the_body(warehouse: str) -> None:
    with serving(warehouse, token="t") as url, httpx.Client(base_url=url, trust_env=False) as client:
        for path in (
            "/api/v1/databases",
            "/api/v1/databases/none",
            "/api/v1/health",
            "/metrics",
            "/openapi.json",
            "/x",
        ):
            headers = {"Authorization": "Bearer t"}
            whole, head = client.get(path, headers=headers), client.head(path, headers=headers)
            assert head.status_code == whole.status_code, path
            assert head.headers["content-type"] == whole.headers["content-type"]
            assert path == "/metrics" or head.headers["content-length"] == whole.headers["content-length"]
            assert head.content == b""
        assert client.head("/api/v1/databases").status_code == 401
        counted = client.get("/metrics").text
        assert 'method="HEAD",path="/api/v1/databases",status="200"' in counted


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/v1/databases", "GET, HEAD, POST"),
        ("/api/v1/databases/shop/tables/orders", "DELETE, GET, HEAD, PATCH"),
        ("/api/v1/health", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_does_not_support(api: httpx.Client, path: str, allowed: str) -> None:
    refused = api.request("PUT", f"{str(api.base_url).partition('/api/')[0]}{path}")
    assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
    assert f"use {' or '.join(allowed.split(', '))}" in refused.json()["detail"]


# ------------------------------------------------------------------------------------------------------------- bounds


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["open", "known", "gone"])), max_size=60))
def test_there_are_never_too_many(steps: list[tuple[int, str]]) -> None:
    """Whatever clients do; only connections without a token are ended for others, the oldest first."""
    ended: list[Connection] = []
    bounds, order = Connections(6, 2), list[Connection]()
    for network, step in steps:
        own = [c for c in order if c.network == str(network)]
        if step == "open":
            new = Connection(str(network), lambda: None)
            new.end = lambda new=new: ended.append(new)  # type: ignore[misc]
            unknown, full = [c for c in order if not c.known], len(order) == 6
            before = [c for c in own if not c.known]
            admitted, expected = bounds.admit(new), before[:1] if len(before) == 2 else unknown[:1] if full else []
            assert ended == expected
            assert admitted == (bool(expected) or not full)
            for gone in ended:
                gone.gone()
                order.remove(gone)
            ended.clear()
            order += [new] if admitted else []
        elif own and step == "known":
            own[0].trust()
        elif own:
            own[0].gone()
            order.remove(own[0])
        assert len(bounds) == len(order) <= 6
        assert not bounds._unknown.keys() ^ {c for c in order if not c.known}


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("", ""),
    ],
)
def test_what_counts_as_one_client(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(("files", "most"), [(1024, 512), (FILES, MOST), (65_536, 4096), (-1, 4096), (100, 16)])
def test_the_process_keeps_files_for_other_work(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections() == most

"""The S3 servers of tests and the proxy before them: what tests of storage rely on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError
from obstore.store import S3Store

from tests.servers import s3 as servers
from tests.servers.s3 import NotBuilt, S3Endpoint, build_versitygw, versitygw
from tests.servers.s3_proxy import Call, Fault, Kind, S3Proxy
from tests.waiting import until

RACERS = 16
PART = 5 << 20


@pytest.fixture
def proxy(s3_server: S3Endpoint) -> Iterator[S3Proxy]:
    """With an empty bucket of its own."""
    with S3Proxy(s3_server) as proxy:
        proxy.bucket = proxy.new_bucket()
        yield proxy


@pytest.fixture
def moto_proxy(moto: S3Endpoint) -> Iterator[S3Proxy]:
    with S3Proxy(moto) as proxy:
        proxy.bucket = proxy.new_bucket()
        yield proxy


def store_of(endpoint: S3Endpoint, retries: int = 0, **client_options: Any) -> S3Store:
    return S3Store(
        endpoint.bucket,
        endpoint=endpoint.endpoint,
        access_key_id=endpoint.access_key,
        secret_access_key=endpoint.secret_key,
        region=endpoint.region,
        client_options={"allow_http": True, **client_options},
        retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=60)},
    )


def of(kind: Kind, fault: Fault) -> Callable[[Call], Fault | None]:
    """The fault at the first attempt of each call of this kind."""
    return lambda call: fault if call.kind is kind and call.attempt == 1 else None


@contextmanager
def refused(code: str) -> Iterator[None]:
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code


# ------------------------------------------------------------------------------------------------ clients


def test_a_client_of_boto3s_kind(proxy: S3Proxy) -> None:
    bucket = proxy.bucket
    with proxy.client() as client:
        client.put_object(Bucket=bucket, Key="a/k 1+ü=&", Body=b"0123456789")
        client.put_object(Bucket=bucket, Key="a/2", Body=b"", IfNoneMatch="*")
        with refused("PreconditionFailed"):
            client.put_object(Bucket=bucket, Key="a/2", Body=b"", IfNoneMatch="*")
        assert client.get_object(Bucket=bucket, Key="a/k 1+ü=&")["Body"].read() == b"0123456789"
        assert client.get_object(Bucket=bucket, Key="a/k 1+ü=&", Range="bytes=2-4")["Body"].read() == b"234"
        assert client.head_object(Bucket=bucket, Key="a/k 1+ü=&")["ContentLength"] == 10
        listed = client.list_objects_v2(Bucket=bucket, Prefix="a/")
        assert [entry["Key"] for entry in listed["Contents"]] == ["a/2", "a/k 1+ü=&"]
        client.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a/2"})
        client.delete_object(Bucket=bucket, Key="a/2")
        client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "b"}, {"Key": "a/k 1+ü=&"}]})
    assert [(call.number, call.kind, call.key) for call in proxy.calls] == [
        (1, Kind.PUT, "a/k 1+ü=&"),
        (2, Kind.PUT_IF, "a/2"),
        (3, Kind.PUT_IF, "a/2"),
        (4, Kind.GET, "a/k 1+ü=&"),
        (5, Kind.GET_RANGE, "a/k 1+ü=&"),
        (6, Kind.HEAD, "a/k 1+ü=&"),
        (7, Kind.LIST, "a/"),
        (8, Kind.COPY, "b"),
        (9, Kind.DELETE, "a/2"),
        (10, Kind.DELETE_MANY, ""),
    ]
    assert [call.attempt for call in proxy.calls if call.key == "a/2"] == [1, 2, 1]
    assert proxy.calls[4].range == "bytes=2-4"
    assert {call.bucket for call in proxy.calls} == {bucket}
    assert proxy.keys() == []


def test_obstore(proxy: S3Proxy) -> None:
    store = store_of(proxy)
    store.put("a", b"0123456789")
    store.put("b", b"", mode="create")
    with pytest.raises(AlreadyExistsError):
        store.put("b", b"", mode="create")
    assert bytes(store.get("a").bytes()) == b"0123456789"
    assert bytes(store.get_range("a", start=2, end=5)) == b"234"
    assert [meta["path"] for batch in store.list() for meta in batch] == ["a", "b"]
    etag = store.head("a")["e_tag"]
    store.put("a", b"new", mode={"e_tag": etag})
    store.delete(["a", "b"])
    assert proxy.keys() == []
    assert [call.conditional for call in proxy.calls if call.kind is Kind.PUT_IF] == [True] * 3
    assert proxy.count(Kind.GET, Kind.GET_RANGE, Kind.HEAD) == 3
    assert proxy.count(Kind.LIST) == 2  # one is of `keys`
    assert proxy.count(Kind.DELETE, Kind.DELETE_MANY) >= 1
    proxy.reset()
    assert (proxy.calls, proxy.count(), proxy.counts()) == ([], 0, {})


def test_uploads_in_parts(proxy: S3Proxy) -> None:
    content = bytes(range(256)) * (2 * PART // 256) + b"end"
    store_of(proxy).put("large", content, use_multipart=True, chunk_size=PART, max_concurrency=2)
    counts = proxy.counts()
    assert counts == {Kind.CREATE_UPLOAD: 1, Kind.PUT_PART: 3, Kind.COMPLETE_UPLOAD: 1}
    assert sorted(call.size for call in proxy.calls if call.kind is Kind.PUT_PART) == [3, PART, PART]
    assert bytes(store_of(proxy).get("large").bytes()) == content
    proxy.reset()
    with proxy.client() as client:
        upload = client.create_multipart_upload(Bucket=proxy.bucket, Key="never")["UploadId"]
        client.list_parts(Bucket=proxy.bucket, Key="never", UploadId=upload)
        client.abort_multipart_upload(Bucket=proxy.bucket, Key="never", UploadId=upload)
    assert proxy.counts() == {Kind.CREATE_UPLOAD: 1, Kind.OTHER: 1, Kind.ABORT_UPLOAD: 1}
    assert proxy.keys() == ["large"]


def test_buckets_are_new_and_empty(s3_server: S3Endpoint) -> None:
    first, second = s3_server.new_bucket(), s3_server.new_bucket()
    assert len({first, second, s3_server.bucket}) == 3
    assert s3_server.keys(first) == s3_server.keys(second) == []


def test_the_environment_is_enough(s3_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.set_environment(monkeypatch)
    bucket = s3_server.new_bucket()
    S3Store(bucket).put("a", b"1")
    assert s3_server.keys(bucket) == ["a"]


def test_versitygw_checks_signature_and_region(versity: S3Endpoint) -> None:
    with S3Endpoint(versity.endpoint, versity.access_key, "wrong").client() as client, refused("SignatureDoesNotMatch"):
        client.list_objects_v2(Bucket=versity.bucket)
    other = S3Endpoint(versity.endpoint, versity.access_key, versity.secret_key, "us-west-2")
    other.bucket = versity.bucket
    with pytest.raises(BaseError, match=f"AuthorizationHeaderMalformed.*{versity.region}"):
        store_of(other).put("a", b"1")


# ------------------------------------------------------------------------------------------------ races


def race(endpoint: S3Endpoint, key: str, mode: Any = "create") -> int:
    """How many of the racers win."""
    store, start = store_of(endpoint), threading.Barrier(RACERS)

    def put(_: int) -> bool:
        start.wait()
        try:
            store.put(key, uuid4().bytes, mode=mode)  # equal contents would have equal ETags
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(put, range(RACERS)))


def test_one_racer_wins(proxy: S3Proxy) -> None:
    assert [race(proxy, f"entry-{number}") for number in range(5)] == [1] * 5
    assert proxy.counts() == {Kind.PUT_IF: 5 * RACERS}


def test_one_racer_replaces_what_it_has_read(proxy: S3Proxy) -> None:
    store = store_of(proxy)
    store.put("lease", b"")
    assert [race(proxy, "lease", {"e_tag": store.head("lease")["e_tag"]}) for _ in range(5)] == [1] * 5


def test_all_racers_win_where_conditions_are_dropped(proxy: S3Proxy) -> None:
    proxy.choose = lambda call: Fault.DROP_CONDITIONS if call.conditional else None
    assert race(proxy, "entry ü+=&") == RACERS
    assert len(proxy.faults) == RACERS


# ------------------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Fault.SLOW_DOWN, "SlowDown", False),
        (Fault.SLOW_DOWN_AFTER, "SlowDown", True),
        (Fault.CONFLICT, "ConditionalRequestConflict", False),
        (Fault.RESET, ConnectionClosedError, False),
        (Fault.RESET_AFTER, ConnectionClosedError, True),
        (Fault.TIME_OUT, ReadTimeoutError, False),
        (Fault.TIME_OUT_AFTER, ReadTimeoutError, True),
        (Fault.SLOW_BODY, None, True),
    ],
)
def test_a_fault_of_a_put(proxy: S3Proxy, fault: Fault, error: str | type[Exception] | None, done: bool) -> None:
    proxy.choose, proxy.slow_s = of(Kind.PUT_IF, fault), 0.05
    with proxy.client(timeout_s=0.2 if error is ReadTimeoutError else 60.0) as client:

        def put(key: str) -> None:
            client.put_object(Bucket=proxy.bucket, Key=key, Body=b"1" * 1000, IfNoneMatch="*")

        if error is None:
            put("a")
        elif isinstance(error, str):
            with refused(error):
                put("a")
        else:
            with pytest.raises(error):
                put("a")
    with proxy.client() as client:
        assert proxy.keys() == (["a"] if done else [])
        with refused("PreconditionFailed") if done else _no_error():
            put("a")
    assert [(call.key, found) for call, found in proxy.faults] == [("a", fault)]
    assert [call.attempt for call in proxy.calls if call.kind is Kind.PUT_IF] == [1, 2]


@contextmanager
def _no_error() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Kind.GET, ResponseStreamingError),
        (Kind.GET_RANGE, ResponseStreamingError),
        (Kind.LIST, ClientError),  # botocore takes XML without an end for an error of the server
        (Kind.HEAD, ConnectionClosedError),
    ],
)
def test_a_reply_is_cut_off(moto_proxy: S3Proxy, kind: Kind, error: type[Exception]) -> None:
    proxy, content = moto_proxy, b"x" * 300_000
    with proxy.client() as client:
        calls = {
            Kind.GET: lambda: client.get_object(Bucket=proxy.bucket, Key="a")["Body"].read(),
            Kind.GET_RANGE: lambda: client.get_object(Bucket=proxy.bucket, Key="a", Range="bytes=0-99")["Body"].read(),
            Kind.LIST: lambda: client.list_objects_v2(Bucket=proxy.bucket),
            Kind.HEAD: lambda: client.head_object(Bucket=proxy.bucket, Key="a"),
        }
        client.put_object(Bucket=proxy.bucket, Key="a", Body=content)
        proxy.reset()
        proxy.choose = of(kind, Fault.CUT_OFF)
        with pytest.raises(error):
            calls[kind]()
        calls[kind]()
    assert proxy.counts() == {kind: 2}
    assert proxy.keys() == ["a"]


def test_a_reply_without_a_body_promises_one(moto_proxy: S3Proxy) -> None:
    moto_proxy.choose = of(Kind.PUT, Fault.CUT_OFF)
    address = moto_proxy.endpoint.removeprefix("http://")
    with closing(HTTPConnection(address)) as connection:  # botocore overlooks it
        connection.request("PUT", f"/{moto_proxy.bucket}/a", b"1")
        with pytest.raises(IncompleteRead):
            connection.getresponse().read()
    assert moto_proxy.keys() == ["a"]


def test_a_body_is_slow(moto_proxy: S3Proxy) -> None:
    store = store_of(moto_proxy)
    store.put("a", b"x" * 100_000)
    moto_proxy.choose, moto_proxy.slow_s = of(Kind.GET, Fault.SLOW_BODY), 0.4
    began = time.monotonic()
    assert len(store.get("a").bytes()) == 100_000
    assert time.monotonic() - began >= 0.3


def test_obstore_repeats_what_fails(moto_proxy: S3Proxy) -> None:
    store = store_of(moto_proxy, retries=2)
    store.put("a", b"1")
    for fault in (Fault.SLOW_DOWN, Fault.SLOW_DOWN_AFTER, Fault.RESET, Fault.RESET_AFTER):
        moto_proxy.reset()
        moto_proxy.choose = of(Kind.GET, fault)
        assert bytes(store.get("a").bytes()) == b"1"
        assert moto_proxy.counts() == {Kind.GET: 2}
    moto_proxy.choose = of(Kind.HEAD, Fault.TIME_OUT)
    with pytest.raises(GenericError, match="retr"):
        store_of(moto_proxy, timeout="200ms").head("a")


def test_each_request_is_delayed(moto_proxy: S3Proxy) -> None:
    store = store_of(moto_proxy)
    moto_proxy.delay_s = 0.05
    began = time.monotonic()
    for number in range(4):
        store.put(str(number), b"1")
    assert time.monotonic() - began >= 4 * 0.05


def test_an_outage(moto_proxy: S3Proxy) -> None:
    moto_proxy.choose = of(Kind.GET, Fault.TIME_OUT)
    with moto_proxy.client() as client:
        client.put_object(Bucket=moto_proxy.bucket, Key="a", Body=b"1")
        moto_proxy.stop()
        moto_proxy.stop()
        with pytest.raises(EndpointConnectionError):
            client.get_object(Bucket=moto_proxy.bucket, Key="a")
        moto_proxy.start()
        assert moto_proxy.count() == 1
        with ThreadPoolExecutor(1) as pool:  # what waits for a reply ends with the proxy
            waiting = pool.submit(client.get_object, Bucket=moto_proxy.bucket, Key="a")
            until(lambda: moto_proxy.count(Kind.GET))
            moto_proxy.stop()
            with pytest.raises(ConnectionClosedError):
                waiting.result()
        moto_proxy.start()
        assert client.get_object(Bucket=moto_proxy.bucket, Key="a")["Body"].read() == b"1"
    moto_proxy.stop()
    port = moto_proxy.endpoint.rpartition(":")[2]
    assert not [thread for thread in threading.enumerate() if thread.name == f"s3-proxy-{port}"]


# ------------------------------------------------------------------------------------------------ the binary


def test_a_build_without_go_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_CACHE", str(tmp_path))
    with pytest.raises(NotBuilt, match="`make versitygw` builds it"):
        versitygw()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotBuilt, match=r"no `go` on the path.*moto alone"):
        build_versitygw()


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_CACHE", str(tmp_path))
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\ntouch $GOBIN/part\necho no such module >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(NotBuilt, match="could not be built: no such module"):
        build_versitygw()
    assert [path.name for path in (tmp_path / "servers").rglob("*") if path.is_file()] == ["lock"]


def test_one_of_several_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_CACHE", str(tmp_path))
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho built >> {tmp_path}/builds\nsleep 0.1\necho binary > $GOBIN/versitygw\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with ThreadPoolExecutor(4) as pool:
        [binary] = set(pool.map(lambda _: build_versitygw(), range(4)))
    assert binary.read_text() == "binary\n"
    assert (tmp_path / "builds").read_text() == "built\n"
    assert servers.versitygw() == binary

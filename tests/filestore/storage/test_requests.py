"""How many requests a storage of objects sends for each of its calls, through both libraries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from filestore.errors import Unavailable
from filestore.storage import retries
from filestore.storage.client import PART_BYTES, TAIL_BYTES
from filestore.storage.interface import Storage
from filestore.storage.objects import ObjectStorage
from tests.filestore.storage.places import Place, put, s3_place
from tests.servers.s3_proxy import Call, Fault, Kind, S3Proxy
from tests.waiting import until

pytestmark = pytest.mark.s3


@pytest.fixture(params=["obstore", "s3fs"])
def place(request: pytest.FixtureRequest, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retries, "_LONGEST_PAUSE_S", 0.002)
    return s3_place(proxy, request.param, monkeypatch)


def sent(proxy: S3Proxy, work: Callable[[], object]) -> dict[Kind, int]:
    proxy.reset()
    work()
    return proxy.counts()


def part(storage: Storage, path: str, *ranges: tuple[int, int]) -> list[bytes]:
    with storage.open_read(path) as source, source.part(ranges) as found:
        return [bytes(found.file.read_at(end - start, start)) for start, end in ranges]


@pytest.mark.few(1)
def test_each_call_is_one_request(place: Place, proxy: S3Proxy) -> None:
    data = bytes(range(256)) * 1024
    small, large, empty = put(place, "small", b"abc"), put(place, "f/large", data), put(place, "empty", b"")
    new = place.anew()
    new.exists(small)  # s3fs looks for the bucket's region once
    assert sent(proxy, lambda: new.read(large)) == {Kind.GET: 1}
    assert sent(proxy, lambda: new.exists(small)) == {Kind.HEAD: 1}
    assert sent(proxy, lambda: new.list_names(place.folder)) == {Kind.LIST: 1}
    assert sent(proxy, lambda: new.write_new(place.path("new"), b"x")) == {Kind.PUT_IF: 1}
    assert sent(proxy, lambda: new.replace(place.path("new"), b"y")) == {Kind.PUT: 1}
    assert sent(proxy, lambda: new.read_each([small, large, place.path("none")])) == {Kind.GET: 3}
    for path, size in ((small, 3), (large, len(data)), (empty, 0)):
        with new.open_read(path) as source:
            assert source.size == size
        assert sent(proxy, lambda path=path: part(new, path)) == {}, "the end is known"
    again = place.anew()
    assert sent(proxy, lambda: again.open_read(large)) == {Kind.GET_RANGE: 1}
    assert sent(proxy, lambda: again.delete_all([small, large, empty, place.path("none")])) == {Kind.DELETE_MANY: 1}
    assert sorted(place.anew().list_names(place.folder)) == ["new"]


def test_what_was_written_or_fetched_is_not_read_again(place: Place, proxy: S3Proxy) -> None:
    data = bytes(range(256)) * 4096
    path = put(place, "f", data)
    end = (len(data) - 10, len(data))
    assert sent(proxy, lambda: part(place.storage, path, end)) == {}
    new = place.anew()
    ranges = [(0, 100), (600_000, 700_000)]
    with new.open_read(path) as source:
        assert sent(proxy, lambda: source.fetch(ranges)) == {Kind.GET_RANGE: 2}
        assert sent(proxy, lambda: source.fetch([*ranges, end, (100, 64 << 10)])) == {}, "with what follows"
        assert source.read(10, 20) == data[10:20]
        assert source.read(*end) == data[-10:]
        assert source.read(len(data) - 1, len(data) + 9) == data[-1:]
        assert source.read(len(data) + 1, len(data) + 9) == b""
    assert sent(proxy, lambda: part(new, path, (50, 80), (650_000, 650_010), end)) == {}
    assert part(new, path, (50, 80), (300_000, 300_007)) == [data[50:80], data[300_000:300_007]]
    new.delete(path)
    with pytest.raises(Exception, match="does not exist"):
        part(new, path, (0, 100))


def test_ends_of_files_are_read_ahead(place: Place, proxy: S3Proxy) -> None:
    paths = [put(place, f"f{n}", bytes([n]) * (TAIL_BYTES + n)) for n in range(20)]
    new = place.anew()
    new.open_read(paths[0]).close()
    missing = place.path("none")
    assert sent(proxy, lambda: new.read_ahead([*paths, missing])) == {Kind.GET_RANGE: 20}
    assert sent(proxy, lambda: [new.open_read(path).close() for path in paths]) == {}
    with pytest.raises(Exception, match="does not exist"):
        new.open_read(missing)


def test_names_behind_a_text(place: Place) -> None:
    for name in ("1", "2.a", "2.b", "10", "x/9", "3/4"):
        put(place, name, b"")
    names = place.anew().list_names
    assert sorted(names(place.folder)) == ["1", "10", "2.a", "2.b"]
    assert sorted(names(place.folder, "2")) == ["2.a", "2.b"]
    assert sorted(names(place.folder, "2.a")) == ["2.b"]
    assert names(place.folder, "2.b") == []
    assert names(place.path("none"), "2") == []


@pytest.mark.deep
def test_a_list_of_several_pages(place: Place, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 lists 1,000 names at a time, and deletes as many."""
    names = [f"{n:05}" for n in range(1005)]
    place.storage.read_each([place.path("none")] * 2)
    own = place.storage._own  # type: ignore[attr-defined]
    list(own.readers.map(lambda name: own.client.put(place.path(name), b""), names))
    assert sorted(place.storage.list_names(place.folder)) == names
    assert sent(proxy, lambda: place.storage.list_names(place.folder, "00003")) == {Kind.LIST: 2}
    assert sent(proxy, lambda: place.storage.list_names(place.folder, "00010")) == {Kind.LIST: 1}
    assert sorted(place.storage.list_names(place.folder, "00003")) == names[4:]
    assert sent(proxy, lambda: place.storage.delete_tree(place.folder))[Kind.DELETE_MANY] == 2
    assert place.anew().list_names(place.folder) == []


@pytest.mark.few(1)
def test_an_object_that_cannot_be_deleted_is_an_error(place: Place, proxy: S3Proxy) -> None:
    path = put(place, "f", b"x")
    proxy.choose = lambda call: Fault.SLOW_DOWN if call.kind in (Kind.DELETE, Kind.DELETE_MANY) else None
    with pytest.raises(Unavailable):
        place.storage.delete_all([path])
    proxy.choose = lambda _: None
    assert place.anew().exists(path)


def test_an_upload_that_nobody_waits_for_is_forgotten_when_it_has_succeeded(place: Place, proxy: S3Proxy) -> None:
    storage = place.storage
    assert isinstance(storage, ObjectStorage)
    for size in (10, 2 * PART_BYTES + 1):
        with storage.open_write(place.path(f"f{size}")) as file:
            file.write(bytes(size))
    uploads = storage._own.uploads
    until(lambda: not uploads._running and not uploads._in_parts, what="the uploads are forgotten")
    assert place.anew().read(place.path("f10")) == bytes(10)


def test_the_error_of_an_upload_is_kept_for_whoever_reads_the_object(place: Place, proxy: S3Proxy) -> None:
    refused: list[Call] = []

    def refuse(call: Call) -> Fault | None:
        refused.append(call)
        return Fault.SLOW_DOWN

    proxy.choose = refuse
    with place.storage.open_write(place.path("f")) as file:
        file.write(b"x")
    until(lambda: len(refused) >= retries._ATTEMPTS, what="the upload has failed")
    proxy.choose = lambda _: None
    with pytest.raises(Unavailable):
        place.storage.read(place.path("f"))
    assert not place.storage.exists(place.path("f"))

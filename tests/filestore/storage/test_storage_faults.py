"""Storages of objects whose requests fail: each is repeated within bounds, and nothing is lost, doubled or damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from filestore.errors import AlreadyExists, Unsupported
from filestore.storage import obstore_client, retries, s3fs_client
from filestore.storage.interface import Storage
from filestore.storage.race_probe import require_exclusive
from tests.filestore.storage.places import Place, s3_place
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Call, Chooser, Fault, Kind, S3Proxy

pytestmark = pytest.mark.s3

FAILED = (
    Fault.SLOW_DOWN,
    Fault.SLOW_DOWN_AFTER,
    Fault.CONFLICT,
    Fault.RESET,
    Fault.RESET_AFTER,
    Fault.TIME_OUT,
    Fault.TIME_OUT_AFTER,
)
READS = (Kind.GET, Kind.GET_RANGE, Kind.HEAD, Kind.LIST)


@pytest.fixture
def proxy(moto: S3Endpoint) -> Iterator[S3Proxy]:
    with S3Proxy(moto) as between:
        yield between


@pytest.fixture(params=["obstore", "s3fs"])
def place(request: pytest.FixtureRequest, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Place:
    for client in (obstore_client, s3fs_client):
        monkeypatch.setattr(client, "REQUEST_S", 1)
    monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(retries, "_LONGEST_PAUSE_S", 0.05)
    return s3_place(proxy, request.param, monkeypatch)


def once(fault: Fault, *kinds: Kind) -> Chooser:
    """The first attempt of each such request has the fault."""
    return lambda call: fault if call.attempt == 1 and call.kind in kinds else None


def always(fault: Fault, begin: int = 1) -> Chooser:
    return lambda call: fault if call.number >= begin else None


def content(storage: Storage, path: str) -> bytes:
    with storage.open_read(path) as source, source.part([(0, source.size)]) as part:
        return bytes(part.file.read())


@pytest.mark.parametrize("fault", FAILED)
def test_a_conditional_write_succeeds_in_spite_of(fault: Fault, place: Place, proxy: S3Proxy) -> None:
    proxy.choose = once(fault, Kind.PUT_IF)
    place.storage.write_new(place.path("v.json"), b"ours")
    assert [found for _, found in proxy.faults] == [fault]
    assert place.anew().read(place.path("v.json")) == b"ours"


@pytest.mark.parametrize("fault", FAILED)
def test_an_object_of_another_writer_is_never_ours(fault: Fault, place: Place, proxy: S3Proxy) -> None:
    place.anew().write_new(place.path("v.json"), b"theirs")
    proxy.reset()
    proxy.choose = once(fault, Kind.PUT_IF)
    with pytest.raises(AlreadyExists):
        place.storage.write_new(place.path("v.json"), b"ours")
    assert place.anew().read(place.path("v.json")) == b"theirs"


def test_a_store_that_ignores_conditions_is_refused(place: Place, proxy: S3Proxy) -> None:
    proxy.choose = lambda _: Fault.DROP_CONDITIONS
    names = iter("abcdefgh")
    with pytest.raises(Unsupported, match="does not keep writers apart"):
        require_exclusive(place.storage, place.folder, lambda: next(names))


def test_calls_are_counted_that_the_faults_hit(place: Place, proxy: S3Proxy) -> None:
    """The proxy's own: a fault that hits nothing would make every test above pass."""
    hit: list[Call] = []
    proxy.choose = lambda call: hit.append(call)
    place.storage.write_new(place.path("x"), b"")
    assert [call.kind for call in hit] == [Kind.PUT_IF]

"""Leases in S3: one of several who take a dead one over wins, and faults of requests change nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from filestore.ambient import system_ambient
from filestore.errors import Conflict
from filestore.layout import LEASES, join
from filestore.leases.objects import ObjectLeases
from tests.filestore.storage.places import Place, s3_place
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Call, Fault, Kind, S3Proxy

pytestmark = [pytest.mark.s3, pytest.mark.parametrize("library", ["obstore", "s3fs"])]

FAULTS = [Fault.SLOW_DOWN, Fault.SLOW_DOWN_AFTER, Fault.RESET, Fault.RESET_AFTER, Fault.CONFLICT]


@pytest.mark.few(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_conditional_write_with_a_fault_succeeds_once(
    moto: S3Endpoint, library: str, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply to a write that succeeded is lost: its repetition is refused, and is recognised as one's own."""
    with S3Proxy(moto) as proxy:
        place = s3_place(proxy, library, monkeypatch)
        proxy.choose = _once(fault)
        path, tag = place.path("lease"), None
        for number in range(3):
            tag = place.storage.replace_tagged(path, b"%d" % number, tag)
            assert place.storage.read_tagged(path).tag == tag
            proxy.reset()
        with pytest.raises(Conflict):
            place.storage.replace_tagged(path, b"late", None)


def _once(fault: Fault) -> Callable[[Call], Fault | None]:
    return lambda call: fault if call.kind is Kind.PUT_IF and call.attempt == 1 else None


@pytest.fixture
def place(moto: S3Endpoint, library: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    return s3_place(moto, library, monkeypatch)


def leases_of(place: Place, now_s: list[float]) -> ObjectLeases:
    """The leases as another process has them; its clock stands still unless it waits."""

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    ambient = replace(system_ambient(), sleep=sleep, monotonic_s=lambda: now_s[0])
    return ObjectLeases(place.anew(), place.folder, ambient, lambda: 60.0)


@pytest.mark.few(1)
def test_of_many_who_take_a_dead_one_over_one_has_it_at_a_time(place: Place) -> None:
    with pytest.raises(KeyError), leases_of(place, [0.0]).hold("c"):
        raise KeyError
    barrier, at_once, most = threading.Barrier(6), [0], [0]
    lock = threading.Lock()

    def take(_: int) -> None:
        leases = leases_of(place, [0.0])
        barrier.wait()
        with leases.hold("c"):
            with lock:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            with lock:
                at_once[0] -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(take, range(6)))
    assert most == [1]
    assert place.storage.list_tagged(join(place.folder, LEASES)) == {}

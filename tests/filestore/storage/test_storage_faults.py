"""Storages of objects whose requests fail: each is repeated within bounds, and nothing is lost, doubled or damaged."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any, cast

import pytest

from filestore.errors import AlreadyExists, Unavailable, Unsupported
from filestore.storage.client import PART_BYTES, TAIL_BYTES
from filestore.storage.interface import Storage
from filestore.storage.race_probe import require_conditions, require_exclusive
from filestore.storage.refusals import BUSY, NO_ANSWER
from tests.depth import sampled
from tests.filestore.storage.places import Place, content, put
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
LOST = (Fault.SLOW_DOWN, Fault.RESET, Fault.TIME_OUT, Fault.CUT_OFF)
READS = (Kind.GET, Kind.GET_RANGE, Kind.HEAD, Kind.LIST)
ATTEMPTS = 6


def once(fault: Fault, *kinds: Kind) -> Chooser:
    """The first attempt of each such request has the fault."""
    return lambda call: fault if call.attempt == 1 and call.kind in kinds else None


def always(fault: Fault, *kinds: Kind) -> Chooser:
    return lambda call: fault if call.kind in kinds else None


# ------------------------------------------------------------------------------------------------ conditional writes


@pytest.mark.few(5)
@pytest.mark.parametrize("fault", FAILED)
def test_a_conditional_write_succeeds_in_spite_of(fault: Fault, place: Place, proxy: S3Proxy) -> None:
    proxy.choose = once(fault, Kind.PUT_IF)
    place.storage.write_new(place.path("v.json"), b"ours")
    assert [found for _, found in proxy.faults] == [fault]
    assert place.anew().read(place.path("v.json")) == b"ours"


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", sampled(FAILED, fast=7, test=2))
def test_an_object_of_another_writer_is_never_ours(fault: Fault, place: Place, proxy: S3Proxy) -> None:
    place.anew().write_new(place.path("v.json"), b"theirs")
    proxy.reset()
    proxy.choose = once(fault, Kind.PUT_IF)
    with pytest.raises(AlreadyExists):
        place.storage.write_new(place.path("v.json"), b"ours")
    assert place.anew().read(place.path("v.json")) == b"theirs"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (Fault.RESET, Fault.SLOW_DOWN),
        (Fault.GATEWAY, Fault.SLOW_DOWN),
        *((first, Fault.GATEWAY) for first in (Fault.SLOW_DOWN, Fault.GATEWAY, Fault.RESET)),
        (Fault.SLOW_DOWN, Fault.SLOW_DOWN),
    ],
)
def test_a_conditional_write_says_whether_it_may_still_be_done(
    first: Fault, last: Fault, place: Place, proxy: S3Proxy
) -> None:
    """One request without a reply is enough: it may arrive when the others have been refused."""
    proxy.choose = lambda call: (first if call.attempt == 1 else last) if call.kind is Kind.PUT_IF else None
    with pytest.raises(Unavailable) as refused:
        place.storage.write_new(place.path("v.json"), b"ours")
    assert refused.value.code == (BUSY if first is last is Fault.SLOW_DOWN else NO_ANSWER)


@pytest.mark.few(2)
@pytest.mark.parametrize(("fault", "code"), [(Fault.MALFORMED, "storage-refused"), (Fault.EXPIRED, "no-permission")])
def test_a_request_that_would_be_refused_again_is_sent_once(
    fault: Fault, code: str, place: Place, proxy: S3Proxy
) -> None:
    proxy.choose = lambda _: fault
    for call in (small, there, names, walked, written, replaced, stored, stored_in_parts, deleted):
        proxy.reset()
        with pytest.raises(Unavailable) as refused:
            call(place)
        without_reason = call is there  # the reply to HEAD has no body, and so no reason
        assert refused.value.code == ("storage-refused" if without_reason else code), call.__name__
        assert {call.attempt for call in proxy.calls} == {1}, call.__name__


@pytest.mark.few(1)
def test_a_gateway_that_sends_requests_twice_is_taken(place: Place, proxy: S3Proxy) -> None:
    """It answers "exists already" to the writer that has created the file."""
    names = (f"probe-{number}" for number in itertools.count())
    proxy.choose = lambda call: Fault.TWICE if call.kind is Kind.PUT_IF else None
    require_exclusive(place.storage, place.folder, lambda: next(names))
    require_conditions(place.storage, place.folder, lambda: next(names))
    proxy.choose = lambda call: Fault.TWICE if call.kind is Kind.PUT_IF and call.number % 2 else None
    require_exclusive(place.storage, place.folder, lambda: next(names))


def test_a_store_whose_late_writers_replace_is_refused_whatever_they_are_answered(place: Place, proxy: S3Proxy) -> None:
    class Replacing:
        """A late writer replaces the file, and is answered that it exists."""

        def __getattr__(self, name: str) -> Any:
            return getattr(place.storage, name)

        def write_new(self, path: str, data: bytes) -> None:
            if data == b"late":
                place.storage.replace(path, data)
                raise AlreadyExists(path)
            place.storage.write_new(path, data)

    names = iter("abcdefgh")
    with pytest.raises(Unsupported, match="a writer replaced a file"):
        require_exclusive(cast("Storage", Replacing()), place.folder, lambda: next(names))


def test_a_store_that_ignores_conditions_is_refused(place: Place, proxy: S3Proxy) -> None:
    proxy.choose = lambda _: Fault.DROP_CONDITIONS
    names = iter("abcdefgh")
    with pytest.raises(Unsupported, match="does not keep writers apart"):
        require_exclusive(place.storage, place.folder, lambda: next(names))


# ------------------------------------------------------------------------------------------------------------- reads

DATA = os.urandom(5 * TAIL_BYTES)


def small(place: Place) -> object:
    return place.storage.read(place.path("_delta_log/1.json"))


def large(place: Place) -> object:
    return content(place.anew(), place.path("b/large"))


def there(place: Place) -> object:
    return [place.storage.exists(place.path(name)) for name in ("b/large", "b/none")]


def names(place: Place) -> object:
    return sorted(place.storage.list_names(place.path("_delta_log")))


def walked(place: Place) -> object:
    return sorted((info.path, info.size) for info in place.storage.walk(place.folder))


CALLS = (small, large, there, names, walked)


@pytest.fixture
def filled(place: Place, proxy: S3Proxy) -> Place:
    put(place, "b/large", DATA)
    for version in (1, 2):
        place.storage.write_new(place.path(f"_delta_log/{version}.json"), b"an entry" * 100)
    proxy.reset()
    return place


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", sampled([*LOST, Fault.SLOW_BODY], fast=5, test=2))
def test_reads_succeed_in_spite_of(fault: Fault, filled: Place, proxy: S3Proxy) -> None:
    proxy.slow_s = 0.3  # shorter than a client waits
    for call in CALLS:
        proxy.choose = once(fault, *READS)
        expected, times = call(filled), len(proxy.faults)
        assert times, f"{call.__name__} sends no request that can fail"
        proxy.reset()
        proxy.choose = lambda _: None
        assert call(filled) == expected
        proxy.reset()
    assert large(filled) == DATA


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", sampled(LOST, fast=4, test=2))
def test_a_store_that_never_answers_is_unavailable_within_bounds(fault: Fault, filled: Place, proxy: S3Proxy) -> None:
    """It is not damage, not a missing file, and not an empty folder."""
    for call in CALLS if fault is not Fault.TIME_OUT else CALLS[:1]:
        proxy.reset()
        proxy.choose = always(fault, *READS)
        with pytest.raises(Unavailable, match="retry") as refused:
            call(filled)
        assert refused.value.code in ((BUSY,) if fault is Fault.SLOW_DOWN else (BUSY, NO_ANSWER))
        assert all(seen.attempt <= ATTEMPTS for seen in proxy.calls)
        assert max(seen.attempt for seen in proxy.calls) == ATTEMPTS


# --------------------------------------------------------------------------------------------------------- deletions


@pytest.mark.few(3)
@pytest.mark.parametrize("fault", sampled([*FAILED, Fault.CUT_OFF], fast=8, test=3))
def test_deletions_succeed_in_spite_of(fault: Fault, filled: Place, proxy: S3Proxy) -> None:
    for name in "xyz":
        put(filled, name, b"")
    proxy.choose = once(fault, Kind.DELETE, Kind.DELETE_MANY)
    filled.storage.delete(filled.path("x"))
    filled.storage.delete_all([filled.path(name) for name in ("x", "y", "z", "none")])
    assert proxy.faults
    filled.storage.delete_tree(filled.path("_delta_log"))
    proxy.choose = lambda _: None
    assert [info.path for info in filled.anew().walk(filled.folder)] == [filled.path("b/large")]


def test_what_a_bulk_deletion_left_is_deleted_by_its_repetition(place: Place, proxy: S3Proxy) -> None:
    some = [put(place, f"d/{number} &", b"") for number in range(5)]
    proxy.choose = once(Fault.PARTLY, Kind.DELETE_MANY)
    place.storage.delete_all(some)
    assert list(place.anew().walk(place.folder)) == []
    assert len(proxy.faults) == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.PARTLY])
def test_a_deletion_that_never_succeeds_is_an_error(fault: Fault, place: Place, proxy: S3Proxy) -> None:
    some = [put(place, f"d/{number}", b"") for number in range(2)]
    proxy.choose = always(fault, Kind.DELETE_MANY)
    with pytest.raises(Unavailable) as refused:
        place.storage.delete_all(some)
    assert refused.value.code == BUSY
    assert place.anew().exists(some[1])


# ----------------------------------------------------------------------------------------------------------- outages


def written(place: Place) -> object:
    return place.storage.write_new(place.path("v.json"), b"")


def replaced(place: Place) -> object:
    return place.storage.replace(place.path("c.json"), b"")


def stored(place: Place) -> object:
    return put(place, "new", b"x")


def stored_in_parts(place: Place) -> object:
    return put(place, "large", bytes(PART_BYTES + 1))


def deleted(place: Place) -> object:
    return place.storage.delete(place.path("_delta_log/1.json"))


@pytest.mark.few(3)
@pytest.mark.parametrize("call", sampled([*CALLS, written, replaced, stored, deleted], fast=9, test=3))
def test_an_outage_is_unavailable_and_what_comes_after_it_succeeds(
    call: Callable[[Place], object], filled: Place, proxy: S3Proxy
) -> None:
    proxy.stop()
    with pytest.raises(Unavailable) as refused:
        call(filled)
    assert refused.value.code == NO_ANSWER
    proxy.start()
    call(filled)
    assert content(filled.anew(), filled.path("b/large")) == DATA


def test_calls_are_counted_that_the_faults_hit(place: Place, proxy: S3Proxy) -> None:
    """The proxy's own: a fault that hits nothing would make every test above pass."""
    hit: list[Call] = []
    proxy.choose = lambda call: hit.append(call)
    place.storage.write_new(place.path("x"), b"")
    assert [call.kind for call in hit] == [Kind.PUT_IF]

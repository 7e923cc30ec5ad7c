"""Large objects, which are uploaded in parts: requests that fail, writers that give up, and the memory they take."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from filestore.errors import Unavailable
from filestore.storage.client import PART_BYTES
from tests.depth import Depth, sampled
from tests.filestore.storage.places import Place, content, put
from tests.servers.s3_proxy import Fault, Kind, S3Proxy

pytestmark = pytest.mark.s3

DATA = os.urandom(2 * PART_BYTES + 5)
UPLOAD = (Kind.CREATE_UPLOAD, Kind.PUT_PART, Kind.COMPLETE_UPLOAD)
FAULTS = (
    Fault.SLOW_DOWN,
    Fault.SLOW_DOWN_AFTER,
    Fault.RESET,
    Fault.RESET_AFTER,
    Fault.TIME_OUT,
    Fault.TIME_OUT_AFTER,
    Fault.CUT_OFF,
)
CASES = [(kind, fault) for kind in UPLOAD for fault in FAULTS]


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "fault"), sampled(CASES, fast=21, test=5, names=2))
def test_an_upload_succeeds_in_spite_of(kind: Kind, fault: Fault, place: Place, proxy: S3Proxy) -> None:
    proxy.choose = lambda call: fault if call.kind is kind and call.attempt == 1 else None
    path = put(place, "f", DATA)
    assert proxy.faults
    assert content(place.anew(), path) == DATA


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", sampled(UPLOAD, fast=3))
def test_an_upload_that_never_succeeds_is_an_error_and_leaves_nothing(kind: Kind, place: Place, proxy: S3Proxy) -> None:
    proxy.choose = lambda call: Fault.SLOW_DOWN if call.kind is kind else None
    with pytest.raises(Unavailable, match="retry") as refused:
        put(place, "f", DATA)
    assert refused.value.code == "storage-busy"
    objects = 3 if kind is Kind.PUT_PART else 1
    assert 6 <= max(call.attempt for call in proxy.calls if call.kind is kind) <= 6 * objects
    proxy.choose = lambda _: None
    assert not place.anew().exists(place.path("f"))
    assert unfinished(proxy, place) == []
    assert content(place.anew(), put(place, "f", DATA)) == DATA


def test_an_upload_has_succeeded_if_its_object_is_there(place: Place, proxy: S3Proxy) -> None:
    """Every reply to its last request is lost, but the request itself is done."""
    proxy.choose = lambda call: Fault.SLOW_DOWN_AFTER if call.kind is Kind.COMPLETE_UPLOAD else None
    path = put(place, "f", DATA)
    assert proxy.faults
    assert content(place.anew(), path) == DATA


def test_a_file_that_is_given_up_leaves_no_upload(place: Place, proxy: S3Proxy) -> None:
    file = place.storage.open_write(place.path("f"))
    file.write(DATA)
    del file
    place.storage.delete(place.path("f"))
    assert proxy.count(Kind.CREATE_UPLOAD) == proxy.count(Kind.ABORT_UPLOAD) == 1
    assert unfinished(proxy, place) == []


@pytest.mark.few(1)
def test_an_outage_in_the_middle_of_an_upload(place: Place, proxy: S3Proxy) -> None:
    arrived = threading.Event()

    def choose(call: object) -> None:
        arrived.set()

    file = place.storage.open_write(place.path("f"))
    file.write(DATA[: PART_BYTES + 1])
    proxy.choose = choose
    assert arrived.wait(60)
    proxy.stop()
    with pytest.raises(Unavailable) as refused:
        file.write(DATA[PART_BYTES + 1 :])
        file.close()
        place.storage.sync(place.path("f"))
    assert refused.value.code == "storage-no-answer"
    proxy.start()
    assert not place.anew().exists(place.path("f"))
    assert content(place.anew(), put(place, "f", DATA)) == DATA


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [5, PART_BYTES + 1])
def test_an_upload_that_failed_is_an_error_for_whoever_asks_until_the_file_is_deleted(
    size: int, place: Place, proxy: S3Proxy
) -> None:
    """The first question used to take the error with it, so that a commit could have named a file that is not there."""
    proxy.choose = lambda call: Fault.SLOW_DOWN if call.kind is not Kind.DELETE_MANY else None
    path = place.path("f")
    with pytest.raises(Unavailable):
        put(place, "f", DATA[:size])
    proxy.choose = lambda _: None
    for _ in range(2):
        with pytest.raises(Unavailable, match="retry"):
            place.storage.sync(path)
    place.storage.delete(path)
    place.storage.sync(path)
    assert content(place.anew(), put(place, "f", DATA[:size])) == DATA[:size]


def unfinished(proxy: S3Proxy, place: Place) -> list[object]:
    """The uploads whose parts the bucket still keeps."""
    with proxy.client() as s3:
        listed = s3.list_multipart_uploads(Bucket=place.folder.split("/")[2])
    return list(listed.get("Uploads", ()))


MEMORY = f"""
import resource, sys
from filestore.storage.locations import S3Store
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings

folder, endpoint, library, megabytes = sys.argv[1:]
storage = ObjectStorage(S3Store(S3Settings(endpoint=endpoint), library))

def write(name, size):
    path = f"{{folder}}/{{name}}"
    piece = bytes(1 << 20)
    with storage.open_write(path) as file:
        for _ in range(size):
            file.write(piece)
    storage.sync(path)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

small = write("small", 2 * {PART_BYTES >> 20})  # loads all that an upload needs
print(write("large", int(megabytes)) - small)
"""


@pytest.mark.deep
def test_the_memory_of_an_upload_does_not_grow_with_its_object(place: Place, proxy: S3Proxy, depth: Depth) -> None:
    """A slow store holds the writer up: it never has more than a few parts in memory."""
    proxy.delay_s = 0.05
    library = "s3fs" if "s3fs" in repr(place.storage) else "obstore"
    size = depth.times(160, deep=640)
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY, place.folder, proxy.endpoint, library, str(size)],
        env={**os.environ, **proxy.environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert proxy.count(Kind.PUT_PART) >= size << 20 >> 23
    assert int(ran.stdout) < 100 << 10  # kilobytes: less than the object, and the same for each size

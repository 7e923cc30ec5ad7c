"""Storages in processes that their user starts by spawn, fork or forkserver: each works, or raises, and none hangs."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from filestore.errors import TableStoreError
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from filestore.storage.objects import ObjectStorage
from tests.depth import sampled
from tests.filestore.storage.places import Place, put, s3_place
from tests.processes import PROCESSES
from tests.servers.s3 import S3Endpoint

pytestmark = [pytest.mark.s3, pytest.mark.slow]

SECONDS = 60.0
HANGS = "hangs"
STORES = ("obstore", "s3fs", "local")
METHODS = ("spawn", "forkserver", "fork")
PARENTS = ("has not used it", "has used it", "uses it")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("store", "method", "parent"), sampled(product(STORES, METHODS, PARENTS), fast=27, test=7, names=3)
)
def test_a_process_that_is_started_with_a_storage(
    moto: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, method: str, parent: str
) -> None:
    place = Place(LocalStorage(), str(tmp_path / "t")) if store == "local" else s3_place(moto, store, monkeypatch)
    place.anew().write_new(place.path("x"), b"known")
    receiving, sending = PROCESSES.Pipe(duplex=False)
    started = PROCESSES.Process(target=_parent, args=(place, method, parent, moto.environment(), sending))
    started.start()
    sending.close()
    assert receiving.poll(300), "the parent has ended"
    outcome, seconds, exit_code, still_works = receiving.recv()
    started.join(60)
    assert started.exitcode == 0
    survives = store == "local" or method != "fork" or parent == "has not used it"
    assert outcome == ("works" if survives else "forked-process")
    assert seconds < SECONDS
    assert exit_code == 0
    assert still_works
    assert place.anew().exists(place.path("child")) == survives


def _parent(place: Place, method: str, parent: str, environment: Mapping[str, str], result: Connection) -> None:
    """Runs in a process that has used no storage yet."""
    os.environ.update(environment)
    if parent != "has not used it":
        put(place, "parent", b"parent")
    with _at_work(place.storage, place.path("x"), threads=2 if parent == "uses it" else 0):
        context = multiprocessing.get_context(method)
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(place, sending))
        child.start()
        sending.close()
        outcome = receiving.recv() if receiving.poll(60) else (HANGS, 60.0)
        child.join(10)
        exit_code = child.exitcode
        child.kill()
    result.send((*outcome, exit_code, place.storage.read(place.path("x")) == b"known"))


@contextmanager
def _at_work(storage: Storage, path: str, threads: int) -> Iterator[None]:
    """Threads that read, so that a fork finds locks taken and replies on their way."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            storage.read(path)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    yield
    ended.set()
    for thread in running:
        thread.join()


def _child(place: Place, result: Connection) -> None:
    if isinstance(place.storage, ObjectStorage):  # a busy machine may need seconds to load its client
        importlib.import_module(f"filestore.storage.{place.storage._opens.library}_client")
    began = time.monotonic()
    try:
        place.storage.write_new(place.path("child"), b"child")
        put(place, "uploaded", b"child")
        assert place.storage.read(place.path("x")) == b"known"
        outcome = "works"
    except TableStoreError as error:
        outcome = error.code
    result.send((outcome, time.monotonic() - began))

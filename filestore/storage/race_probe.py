"""Checks that a store keeps writers apart: by exclusive creation, and for logs by replacement on a condition."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from filestore.errors import AlreadyExists, Conflict, Unavailable, Unsupported
from filestore.storage.interface import Storage
from filestore.storage.refusals import no_conditions

__all__ = ["require_conditions", "require_exclusive"]

_RACERS, _ROUNDS = 16, 5
_START_S = 30.0  # how long the threads of a round wait for one another


def require_exclusive(storage: Storage, folder: str, new_id: Callable[[], str]) -> None:
    """Lets 16 writers create the same file at the same time, several times, and then one more write it again.

    Args:
        storage: The storage.
        folder: A folder for the files, which are deleted afterwards.
        new_id: Returns unique names.

    Raises:
        Unsupported: ``not-exclusive``: several writers won, or none.
        Unavailable: the storage does not answer, or its bucket does not exist; ``race-probe``: this process cannot
            start enough threads.
    """
    paths = [f"{folder.rstrip('/')}/{new_id()}" for _ in range(_ROUNDS)]
    try:
        with ThreadPoolExecutor(_RACERS, "race-probe") as pool:
            for path in paths:
                _race(storage, path, pool, folder)
    finally:
        storage.delete_all(paths)


def require_conditions(storage: Storage, folder: str, new_id: Callable[[], str]) -> None:
    """Creates a file and replaces it by its tag, and tries both where the condition does not hold any more.

    Args:
        storage: The storage.
        folder: A folder for the file, which is deleted afterwards.
        new_id: Returns unique names.

    Raises:
        Unsupported: ``no-conditional-writes``: it cannot do this, or it does it whatever the condition is.
        Unavailable: the storage does not answer.
    """
    path = f"{folder.rstrip('/')}/{new_id()}"
    try:
        first = storage.replace_tagged(path, b"1", None)
        storage.replace_tagged(path, b"2", first)
        for data, tag in ((b"3", first), (b"4", None)):
            try:
                storage.replace_tagged(path, data, tag)
            except Conflict:
                continue
            raise no_conditions(folder)
    finally:
        storage.delete(path)


def _race(storage: Storage, path: str, pool: ThreadPoolExecutor, folder: str) -> None:
    start = threading.Barrier(_RACERS, timeout=_START_S)

    def run(number: int) -> int | None:
        start.wait()
        try:
            storage.write_new(path, _content(number))
        except AlreadyExists:
            return None
        return number

    try:
        running = [pool.submit(run, number) for number in range(_RACERS)]
    except RuntimeError as error:  # Python could not start a thread
        start.abort()  # those that have started wait for it
        raise _not_tried(folder) from error
    try:
        winners = [number for number in (each.result() for each in running) if number is not None]
    except threading.BrokenBarrierError as error:
        raise _not_tried(folder) from error
    # A gateway that sends a request twice answers the winner, too, that the file exists: the content decides.
    created = _winner(storage.read(path))
    if created is None or not set(winners) <= {created}:
        raise _refusal(folder, f"{len(winners)} of {_RACERS} writers created the same file")
    try:
        storage.write_new(path, b"late")
    except AlreadyExists:
        if _winner(storage.read(path)) == created:
            return
    raise _refusal(folder, "a writer replaced a file that another had created")


def _content(number: int) -> bytes:
    return f"writer {number}".encode()


def _winner(content: bytes) -> int | None:
    """Returns whose content it is; None if it is nobody's."""
    return next((number for number in range(_RACERS) if content == _content(number)), None)


def _refusal(folder: str, what: str) -> Unsupported:
    return Unsupported(
        f"the store of {folder} does not keep writers apart: {what}, so commits would overwrite each other. Take a "
        "store with conditional writes (If-None-Match), such as S3, MinIO, Ceph or versitygw, or let the catalog's "
        "database keep commits apart: connect(…, commits='catalog'), serve --commits catalog, or "
        "$TABLESTORE_COMMITS = catalog",
        code="not-exclusive",
    )


def _not_tried(folder: str) -> Unavailable:
    return Unavailable(
        f"it could not be tried whether the store of {folder} keeps writers apart, because {_RACERS} threads did not "
        f"start within {_START_S:.0f} seconds: retry when the machine is less busy, or allow this process more threads",
        code="race-probe",
    )

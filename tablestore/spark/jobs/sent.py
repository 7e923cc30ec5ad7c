"""Sends a value to the tasks of a job. A large version's files go to each executor once, and its workers map them.

In a job's own command they would travel with each job, and each task would have them in its memory: at a million files
111 MB. So they are broadcast, in one file of Arrow, and one broadcast serves all jobs on the same files: what has
changed since is sent with a job, as are few files.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Broadcast, SparkContext
from pyspark.cloudpickle import CloudPickler
from pyspark.sql import SparkSession

from filestore.ambient import system_ambient
from filestore.delta.base import FEW_FILES
from filestore.delta.columns import ColumnFiles
from tablestore.spark.jobs.local_disk import local_disk

__all__ = ["Sent", "sent"]

T = TypeVar("T")

_KEPT = 2
_NAMED = "tablestore-files-{}-{}.arrow"
_NAME = re.compile(r"tablestore-files-(.{36})-(\d+)\.")  # another driver may use the same executors, one after a crash


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """A value as a job's tasks get it; picklable.

    Args:
        pickled: The value without the files that are broadcast.
        parts: These, by the number that stands for them in it.
        kept: The driver, and the number of its oldest broadcast that a job may still use.
    """

    pickled: bytes
    parts: Sequence[_Part]
    kept: tuple[str, int]

    def get(self) -> T:
        """Returns the value, in a task."""
        found: T = _Unpickler(io.BytesIO(self.pickled), self).load()
        return found


@contextmanager
def sent(value: T, session: SparkSession) -> Iterator[Sent[T]]:
    """Sends a value to the tasks of a job, which has to end within the block."""
    parts: list[_Part] = []
    pickled = io.BytesIO()
    try:
        pickler: pickle.Pickler = _Pickler(pickled, _context(session), parts)
        pickler.dump(value)
        yield Sent(pickled.getvalue(), parts, _SHARED.kept)
    finally:
        _SHARED.give_back(parts)


def _context(session: object) -> SparkContext | None:
    """Returns what broadcasts; None for a session of Spark Connect, whose jobs take all with them."""
    return session.sparkContext if isinstance(session, SparkSession) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Files that are broadcast.

    Attributes:
        number: Later broadcasts have larger ones.
        name: The name of their file on each executor's disk.
        content: What stores this file once it is loaded.
    """

    number: int
    name: str
    content: Broadcast[_Stored]

    def files(self, kept: tuple[str, int]) -> ColumnFiles:
        """Returns the files, in a task."""
        path = os.path.join(local_disk(0), self.name)
        if not os.path.exists(path):
            _ = self.content.value  # whoever asks first on an executor stores them
        _remove(*kept)
        return _mapped(path)


class _Pickler(CloudPickler):
    def __init__(self, to: io.BytesIO, context: SparkContext | None, parts: list[_Part]) -> None:
        super().__init__(to)  # type: ignore[no-untyped-call]
        self._context = context
        self._parts = parts

    def persistent_id(self, value: Any) -> int | None:
        """Returns the number of files that are broadcast; None for all else, which is pickled here."""
        if type(value) is not ColumnFiles or self._context is None or value.count <= FEW_FILES:
            return None
        self._parts.append(_SHARED.borrow(self._context, value))
        return len(self._parts) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: io.BytesIO, value: Sent[Any]) -> None:
        super().__init__(pickled)
        self._value = value

    def persistent_load(self, number: int) -> ColumnFiles:
        return self._value.parts[number].files(self._value.kept)


class _Stored:
    """Files that are stored on an executor's disk when a worker loads them, in which nothing is left of them."""

    def __init__(self, name: str, files: ColumnFiles) -> None:
        self._name = name
        self._message = files.to_message()

    def __reduce__(self) -> tuple[Any, ...]:
        return _store, (self._name, self._message)


def _store(name: str, message: pa.RecordBatch) -> None:
    """Stores files under a name. Where Spark encrypts what it stores all workers load them; the first stores them."""
    folder = local_disk(0)
    path = os.path.join(folder, name)
    if os.path.exists(path):
        return
    handle, begun = tempfile.mkstemp(prefix=name, dir=folder)
    os.close(handle)
    try:
        with pa.ipc.new_file(begun, message.schema) as file:
            file.write_batch(message)
        os.replace(begun, path)
    except BaseException:
        os.unlink(begun)
        raise


def _remove(driver: str, oldest: int) -> None:
    """Removes the files of broadcasts that no job uses any more; a worker that has mapped one keeps it."""
    folder = local_disk(0)
    for name in os.listdir(folder):
        found = _NAME.match(name)
        if found is not None and found[1] == driver and int(found[2]) < oldest:
            with suppress(OSError):  # another worker was faster
                os.unlink(os.path.join(folder, name))


@lru_cache(maxsize=_KEPT)
def _mapped(path: str) -> ColumnFiles:
    """Maps files that are stored. A worker's next tasks find them as its last ones left them."""
    with pa.memory_map(path) as file:
        return ColumnFiles.of_message(pa.ipc.open_file(file).get_batch(0))


@dataclass(slots=True, eq=False)
class _Lent:
    """Files that are broadcast, and how many jobs use them."""

    context: SparkContext
    files: weakref.ref[ColumnFiles]
    part: _Part
    users: int = 0


class _Shared:
    """The broadcasts of this driver. It keeps the last ones: the next jobs are often on the same files."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._lent: list[_Lent] = []
        self._next = 0

    @property
    def kept(self) -> tuple[str, int]:
        """The id of this process, and the number of its oldest broadcast that is left."""
        return self._driver, min((lent.part.number for lent in list(self._lent)), default=self._next)

    def borrow(self, context: SparkContext, files: ColumnFiles) -> _Part:
        """Broadcasts files unless they are already. Each call needs a `give_back`."""
        with self._lock:
            lent = next((lent for lent in self._lent if lent.context is context and lent.files() is files), None)
            if lent is None:
                name = _NAMED.format(self._driver, self._next)
                part = _Part(self._next, name, context.broadcast(_Stored(name, files)))
                lent = _Lent(context, weakref.ref(files), part)
                self._lent.append(lent)
                self._next += 1
            lent.users += 1
            return lent.part

    def give_back(self, parts: Sequence[_Part]) -> None:
        """Ends broadcasts that no job uses, but the last ones."""
        if not parts:
            return
        with self._lock:
            for lent in self._lent:
                lent.users -= parts.count(lent.part)
            idle = [lent for lent in self._lent if not lent.users]
            over = [lent for lent in idle if lent.files() is None or lent not in idle[-_KEPT:]]
            self._lent = [lent for lent in self._lent if lent not in over]
        for lent in over:
            if lent.context is SparkContext._active_spark_context:  # in a later one another broadcast has its number
                with suppress(Py4JError, OSError):  # the session ends just now
                    lent.part.content.destroy()


_SHARED = _Shared(system_ambient().new_id())

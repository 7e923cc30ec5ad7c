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

from filestore.delta.base import FEW_FILES
from filestore.delta.columns import ColumnFiles
from tablestore.spark.jobs.local_disk import local_disk

__all__ = ["Sent", "sent"]

T = TypeVar("T")

_KEPT = 2
_NAMED = "tablestore-files-{}.arrow"
_NAME = re.compile(r"tablestore-files-(\d+)\.")


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """A value as a job's tasks get it; picklable.

    Args:
        pickled: The value without the files that are broadcast.
        parts: These, by the number that stands for them in it.
        oldest: The number of the oldest broadcast that a job may still use.
    """

    pickled: bytes
    parts: Sequence[_Part]
    oldest: int

    def get(self) -> T:
        """Returns the value, in a task."""
        found: T = _Unpickler(io.BytesIO(self.pickled), self).load()
        return found


@contextmanager
def sent(value: T) -> Iterator[Sent[T]]:
    """Sends a value to the tasks of a job, which has to end within the block.

    Args:
        value: It is picklable by Python itself.
    """
    context = SparkContext._active_spark_context  # None with Spark Connect, which broadcasts nothing
    parts: list[_Part] = []
    pickled = io.BytesIO()
    try:
        _Pickler(pickled, context, parts).dump(value)
        yield Sent(pickled.getvalue(), parts, _SHARED.oldest)
    finally:
        _SHARED.give_back(parts)


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

    def files(self, oldest: int) -> ColumnFiles:
        """Returns the files, in a task."""
        path = os.path.join(local_disk(0), self.name)
        if not os.path.exists(path):
            _ = self.content.value  # whoever asks first on an executor stores them
            _remove(oldest)
        return _mapped(path)


class _Pickler(pickle.Pickler):
    def __init__(self, to: io.BytesIO, context: SparkContext | None, parts: list[_Part]) -> None:
        super().__init__(to, pickle.HIGHEST_PROTOCOL)
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
        return self._value.parts[number].files(self._value.oldest)


class _Stored:
    """Files that are stored on an executor's disk when a worker loads them, in which nothing is left of them."""

    def __init__(self, name: str, files: ColumnFiles) -> None:
        self._name = name
        self._message = files.to_message()

    def __reduce__(self) -> tuple[Any, ...]:
        return _store, (self._name, self._message)


def _store(name: str, message: pa.RecordBatch) -> None:
    folder = local_disk(0)
    handle, begun = tempfile.mkstemp(prefix=name, dir=folder)
    os.close(handle)
    with pa.ipc.new_file(begun, message.schema) as file:
        file.write_batch(message)
    os.replace(begun, os.path.join(folder, name))


def _remove(oldest: int) -> None:
    """Removes the files of broadcasts that no job uses any more; a worker that has mapped one keeps it."""
    folder = local_disk(0)
    for name in os.listdir(folder):
        found = _NAME.match(name)
        if found is not None and int(found[1]) < oldest:
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: list[_Lent] = []
        self._next = 0

    @property
    def oldest(self) -> int:
        """The number of the oldest broadcast that is left."""
        with self._lock:
            return min((lent.part.number for lent in self._lent), default=self._next)

    def borrow(self, context: SparkContext, files: ColumnFiles) -> _Part:
        """Broadcasts files unless they are already. Each call needs a `give_back`."""
        with self._lock:
            lent = next((lent for lent in self._lent if lent.context is context and lent.files() is files), None)
            if lent is None:
                name = _NAMED.format(self._next)
                part = _Part(self._next, name, context.broadcast(_Stored(name, files)))
                lent = _Lent(context, weakref.ref(files), part)
                self._lent.append(lent)
                self._next += 1
            lent.users += 1
            return lent.part

    def give_back(self, parts: Sequence[_Part]) -> None:
        """Ends broadcasts that no job uses, but the last ones."""
        with self._lock:
            for lent in self._lent:
                lent.users -= parts.count(lent.part)
            idle = [lent for lent in self._lent if not lent.users]
            over = [lent for lent in idle if lent.files() is None or lent not in idle[-_KEPT:]]
            self._lent = [lent for lent in self._lent if lent not in over]
        for lent in over:
            with suppress(Py4JError, OSError):  # the session is gone, and all that was broadcast with it
                lent.part.content.destroy()


_SHARED = _Shared()

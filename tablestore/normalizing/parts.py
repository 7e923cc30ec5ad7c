"""Normalizers for parts of an input, as tasks use them: each part has a state, which stays open in the process.

A part has all changes of its keys in order, such as a partition of a topic that is partitioned by key. A task may run
anywhere and repeatedly: an applied batch is recognised by its end, and has the same changes again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from filestore.model.definition import TableDefinition
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.spec import NormalizerSpec

__all__ = ["OpenNormalizers", "opened_part"]

_MOST_OPEN = 64


class OpenNormalizers:
    """The normalizers that a process used last. Threads may share it.

    Args:
        most: The number that is kept open; each has the look-up cache of its state.
    """

    def __init__(self, most: int = _MOST_OPEN) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, TableDefinition], Normalizer] = OrderedDict()

    def of(self, spec: NormalizerSpec) -> Normalizer:
        """Returns the normalizer, opened if necessary; raises as `Normalizer`."""
        key = spec.state, spec.definition  # an unpickled storage is another object for the same disk
        with self._lock:
            found = self._open.pop(key, None) or Normalizer(spec)
            self._open[key] = found
            gone = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - self._most)]
        for one in gone:
            one.close()
        return found

    def close(self) -> None:
        """Closes all of them."""
        with self._lock:
            gone, self._open = list(self._open.values()), OrderedDict()
        for one in gone:
            one.close()


_OF_THIS_PROCESS = OpenNormalizers()


def opened_part(spec: NormalizerSpec, part: str) -> Normalizer:
    """Returns the normalizer of one part, which the process keeps open.

    Args:
        spec: The spec of the whole input. Its folder gets a folder for each part.
        part: The part's name, such as the partition's number.

    Raises:
        TableStoreError: as `Normalizer`.
    """
    return _OF_THIS_PROCESS.of(spec.part(part))

"""Normalizers of an input's parts, as tasks use them: one state for each part, kept open in the process.

A part is what has all changes of its keys in order, such as a partition of a topic that is partitioned by key. A task
may run anywhere and more than once: a batch that was taken is known by where it ends, and gives the same changes again.
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
    """The normalizers that a process has used last. Threads may share it.

    Args:
        most: How many are kept; each holds the look-up cache of its state.
    """

    def __init__(self, most: int = _MOST_OPEN) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, TableDefinition], Normalizer] = OrderedDict()

    def of(self, spec: NormalizerSpec) -> Normalizer:
        """The normalizer, opened if it is not; errors as of `Normalizer`."""
        key = spec.state, spec.definition  # a storage that was pickled is another object, on the same disk
        with self._lock:
            found = self._open.pop(key, None) or Normalizer(spec)
            self._open[key] = found
            gone = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - self._most)]
        for one in gone:
            one.close()
        return found

    def close(self) -> None:
        """Lets all of them go."""
        with self._lock:
            gone, self._open = list(self._open.values()), OrderedDict()
        for one in gone:
            one.close()


_OF_THIS_PROCESS = OpenNormalizers()


def opened_part(spec: NormalizerSpec, part: str) -> Normalizer:
    """The normalizer of one part, which the process keeps.

    Args:
        spec: Of the whole input. Its folder gets one below it for each part.
        part: The part's name, such as the partition's number.

    Raises:
        TableStoreError: as `Normalizer`.
    """
    return _OF_THIS_PROCESS.of(spec.part(part))

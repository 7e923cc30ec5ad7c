"""The paths that versions of a table name, of which each live file's takes 8 bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from filestore.delta.adds import Mask
from filestore.delta.batch import Batch
from filestore.delta.by_slot import BySlot
from filestore.delta.vectors import vector_file
from filestore.model.files import DataFile

__all__ = ["Paths", "live_vectors"]


class Paths:
    """Paths of files relative to the table.

    Of those that it begins with only hashes are kept. So it may say of one in about ten million million that it is here
    though it is not, never the other way: a file that no version names may stay, and none that is named is removed.

    Args:
        live: The files of a version, with their vectors; None for no file.
    """

    def __init__(self, live: BySlot[DataFile] | None = None) -> None:
        self._hashes = np.zeros(0, np.int64)
        self._others = set[str]()
        if live is not None:
            self._hashes = np.sort(np.concatenate([self._hashes, *_hashes_of(live)]))
            self._others |= live_vectors(live)

    def update(self, paths: Iterable[str]) -> None:
        """Adds paths."""
        self._others.update(paths)

    def __contains__(self, path: object) -> bool:
        if path in self._others:
            return True
        wanted = hash(path)
        at = int(self._hashes.searchsorted(wanted))
        return at < len(self._hashes) and bool(self._hashes[at] == wanted)


def _hashes_of(files: BySlot[DataFile]) -> Iterator[npt.NDArray[np.int64]]:
    for paths in files.paths():
        yield np.fromiter(map(hash, paths), np.int64, len(paths))


def live_vectors(files: BySlot[DataFile]) -> set[str]:
    """Returns the files of a version's vectors; one file may have those of many data files."""
    marked = (file.vector for some in files.candidates(_has_vector) for file in some)
    return {vector_file(vector) for vector in marked if vector is not None}


def _has_vector(batch: Batch) -> Mask:
    found: Mask = pc.struct_field(batch.adds, "deletionVector").is_valid().to_numpy(zero_copy_only=False)
    return found

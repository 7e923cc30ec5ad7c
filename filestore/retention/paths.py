"""The paths that versions name, as hashes: 8 bytes for each, however long they are (FORMAT.md section 14). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from filestore import layout
from filestore.decoding import well_formed
from filestore.delta.actions import Action, file_key
from filestore.delta.adds import Mask
from filestore.delta.batch import Batch
from filestore.delta.by_slot import BySlot
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.model.files import DataFile, DeletionVector

__all__ = ["Paths", "named_by", "runs_of"]

_TOGETHER = 100_000


class Paths:
    """Paths of files relative to the table.

    It may say of one in some million million that it is here though it is not, never the other way: so a file that no
    version names may stay, and none that is named is taken for such a one.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(0, np.int64)
        self._lately = set[int]()

    @classmethod
    def of_version(cls, state: TableState) -> Paths:
        """Returns those that a version names: data files, vectors and runs."""
        paths = cls()
        paths._take_up(np.concatenate([paths._hashes, *_hashes_of(state.files)]))
        paths.update(_live_vectors(state.files))
        paths.update_runs(state)
        return paths

    def update(self, paths: Iterable[str]) -> None:
        """Adds paths."""
        self._lately.update(map(hash, paths))
        if len(self._lately) > _TOGETHER:
            self._take_up(np.fromiter(self._lately, np.int64, len(self._lately)))
            self._lately = set()

    def update_runs(self, state: TableState) -> None:
        """Adds the runs of a version."""
        for configuration in state.domains.values():
            self.update(runs_of(configuration))

    def _take_up(self, hashes: npt.NDArray[np.int64]) -> None:
        self._hashes = np.union1d(self._hashes, hashes)

    def __contains__(self, path: object) -> bool:
        wanted = hash(path)
        at = int(self._hashes.searchsorted(wanted))
        return (at < len(self._hashes) and bool(self._hashes[at] == wanted)) or wanted in self._lately


def _hashes_of(files: BySlot[DataFile]) -> Iterator[npt.NDArray[np.int64]]:
    for paths in files.paths():
        yield np.fromiter(map(hash, paths), np.int64, len(paths))


def _live_vectors(files: BySlot[DataFile]) -> set[str]:
    """Returns the files of a version's vectors; one file may have those of many data files."""
    marked = (file.vector for some in files.candidates(_has_vector) for file in some)
    return {vector_file(vector) for vector in marked if vector is not None}


def _has_vector(batch: Batch) -> Mask:
    found: Mask = pc.struct_field(batch.adds, "deletionVector").is_valid().to_numpy(zero_copy_only=False)
    return found


def named_by(action: Action) -> Iterator[str]:
    """Yields the files that an action names."""
    if (change := action.get("add") or action.get("remove")) is not None:
        yield file_key(change)
        if (vector := DeletionVector.from_action(change.get("deletionVector"))) is not None:
            yield vector_file(vector)
    elif (change := action.get("cdc")) is not None:
        yield file_key(change)
    elif (domain := action.get("domainMetadata")) is not None:
        yield from runs_of(domain["configuration"])


def runs_of(configuration: str) -> frozenset[str]:
    """Returns the runs that a metadata domain names: every string in it that is a run's path, at any depth."""
    with well_formed(f"the configuration {configuration[:80]!r} in the Delta log", code="bad-log-entry"):
        found, waiting = set[str](), [json.loads(configuration)]
    while waiting:
        match waiting.pop():
            case str() as text if layout.is_run(text):
                found.add(text)
            case dict() as members:
                waiting += [*members.keys(), *members.values()]
            case list() as items:
                waiting += items
            case _:
                pass
    return frozenset(found)

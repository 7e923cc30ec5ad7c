"""Reads checkpoints: the actions of a version, out of one or more files (FORMAT.md section 2; Delta, "Checkpoints").

Its errors say that a checkpoint is damaged or another table's. Readers take an older one then, so nothing of a
checkpoint counts unless all of it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filestore import layout
from filestore.decoding import decoding, well_formed
from filestore.delta.actions import Action, file_key
from filestore.delta.checkpoint_files import CheckpointFiles
from filestore.delta.columns import ADD
from filestore.delta.state import TableState
from filestore.errors import Corrupt
from filestore.parquet.whole import check_parquet, decoded_parquet
from filestore.storage.interface import Storage

__all__ = ["CheckpointContent", "checkpoint_state", "read_checkpoint"]

_CODE = "bad-delta-checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """The actions of a checkpoint.

    Attributes:
        what: What was read, for errors.
        adds: The ``add`` actions, of type `filestore.delta.columns.ADD`.
        others: All other actions but ``remove``: their files are gone already.
        summed: Whether all bytes were compared with checksums of ours.
    """

    what: str
    adds: pa.StructArray
    others: tuple[Action, ...]
    summed: bool


def read_checkpoint(storage: Storage, location: str, files: CheckpointFiles) -> CheckpointContent:
    """Reads a checkpoint.

    Raises:
        Corrupt: ``bad-delta-checkpoint``.
        NotFound: it is gone.
    """
    # not by `open_read`: a table that is made again at the same place has checkpoints of the same names
    [name] = files.names
    path = layout.join(location, layout.log_file_path(name))
    data = storage.read(path)
    with _readable(what := f"the checkpoint {path}"):
        summed = check_parquet(data, path)
        adds, others = _actions_of(decoded_parquet(data, summed=summed))
    return CheckpointContent(what, adds, tuple(others), summed)


def checkpoint_state(content: CheckpointContent, version: int, entry: Iterable[Action]) -> TableState:
    """Returns the version that a checkpoint holds.

    Args:
        content: The checkpoint.
        version: Its version.
        entry: The actions of the version's log entry, with which it is compared.

    Raises:
        Corrupt: ``bad-delta-checkpoint``: it is damaged, or another table's.
    """
    actions = list(entry)
    info = [action for action in actions if "commitInfo" in action]
    try:
        with decoding(content.what, code=_CODE):
            state = TableState.initial(version, [*content.others, *info], content.adds)
            if not content.summed:
                next(iter(state.files), None)  # makes objects of all now: there are no checksums to rely on
            follows = state.follows_from(actions) and _has_files(content.adds, actions)
    except Corrupt as error:
        raise Corrupt(f"{content.what} is damaged: {error}", code=_CODE) from error
    if not follows:
        raise Corrupt(
            f"{content.what} does not have what its version's log entry says, so it is damaged or another table's: "
            "remove it, and readers take an older one",
            code=_CODE,
        )
    return state


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Makes all errors of decoding a part of a checkpoint errors of the tree."""
    with decoding(what, code=_CODE), well_formed(what, code=_CODE):
        yield


def _actions_of(checkpoint: pa.Table) -> tuple[pa.StructArray, list[Action]]:
    """Returns the ``add`` actions of a checkpoint, and all others but ``remove``.

    Raises:
        ValueError: it has files in sidecars (Delta protocol, "V2 Checkpoint Table Feature").
    """
    if "sidecar" in checkpoint.column_names and checkpoint.column("sidecar").null_count < checkpoint.num_rows:
        raise ValueError("its files are in sidecars, which this version of Tablestore does not read")
    adds = checkpoint.column("add").cast(ADD).combine_chunks()
    others = checkpoint.select([name for name in checkpoint.column_names if name not in ("add", "remove")])
    rows = others.filter(pc.is_null(adds)).to_pylist(maps_as_pydicts="strict")
    last = adds.slice(adds.null_count)  # where ours are
    files = adds.filter(pc.is_valid(adds)) if last.null_count else last
    return files, [{k: v for k, v in row.items() if v is not None} for row in rows]


def _has_files(adds: pa.StructArray, actions: Iterable[Action]) -> bool:
    """Returns whether files are those of a version by its own actions: what these add, and not what they remove."""
    listed = list(actions)
    come = {file_key(action["add"]) for action in listed if "add" in action}
    gone = {file_key(action["remove"]) for action in listed if "remove" in action} - come
    paths = pc.struct_field(adds, "path")
    if pc.any(pc.match_substring(paths, "%")).as_py():
        paths = pa.array([layout.decode_path(path) for path in paths.to_pylist()], paths.type)
    there = [pc.sum(pc.is_in(pa.array(list(some), paths.type), paths)).as_py() or 0 for some in (come, gone)]
    return there == [len(come), 0]

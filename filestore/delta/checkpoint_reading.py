"""Reads checkpoints: the actions of a version, out of one or more files (FORMAT.md section 2; Delta, "Checkpoints").

A checkpoint is one file, several parts, or a file that names sidecars, which have the actions of files. Its errors say
that it is damaged or another table's. Readers take an older one then, so nothing of a checkpoint counts unless all of
it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from filestore import layout
from filestore.decoding import decoding, well_formed
from filestore.delta.actions import Action, file_key
from filestore.delta.add_files import check_statistics
from filestore.delta.adds import ADD, partition_texts
from filestore.delta.checkpoint_files import CheckpointFiles
from filestore.delta.entry import decode
from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound
from filestore.model.definition import TableDefinition
from filestore.parquet.whole import check_parquet, decoded_parquet
from filestore.rows.partitions import partition_column_of
from filestore.storage.interface import Storage

__all__ = ["CheckpointContent", "checkpoint_state", "named_sidecars", "read_checkpoint"]

_CODE = "bad-delta-checkpoint"
_TOGETHER = 8
"""The greatest number of parts or sidecars whose bytes are in memory at once."""

_OF_FILES = frozenset(["add", "remove"])
_OF_V2 = frozenset(["checkpointMetadata", "sidecar"])
_KNOWN = _OF_FILES | _OF_V2 | {"cdc", "commitInfo", "domainMetadata", "metaData", "protocol", "txn"}


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """The actions of a checkpoint, or of one of its files.

    Attributes:
        what: What was read, for errors.
        adds: The ``add`` actions, of type `filestore.delta.adds.ADD`.
        others: All other actions but ``remove``: their files are gone already.
        summed: Whether all bytes were compared with checksums of ours.
    """

    what: str
    adds: pa.StructArray
    others: tuple[Action, ...]
    summed: bool


def read_checkpoint(storage: Storage, location: str, files: CheckpointFiles) -> CheckpointContent:
    """Reads a checkpoint with all its parts or sidecars.

    Raises:
        Corrupt: ``bad-delta-checkpoint``: it is damaged, or lacks a sidecar.
        NotFound: it is gone.
    """
    own = [layout.join(location, layout.log_file_path(name)) for name in files.names]
    found = [_content(f"the checkpoint {path}", path, data) for path, data in _parts(storage, own)]
    what = found[0].what
    with _readable(what):
        named = _sidecars(location, found)
        if named and not files.may_have_sidecars:
            raise ValueError("one of several parts names sidecars")
    for path, data in _read_each(storage, list(named)):
        found.append(_sidecar(f"the sidecar {path} of {what}", path, data, named[path]))
    with _readable(what):
        return _joined(files.version, found)


def named_sidecars(storage: Storage, location: str, files: CheckpointFiles) -> frozenset[str]:
    """Returns the paths of the sidecars that a checkpoint names; errors as in `read_checkpoint`."""
    if not files.may_have_sidecars:
        return frozenset()
    [path] = (layout.join(location, layout.log_file_path(name)) for name in files.names)
    content = _content(f"the checkpoint {path}", path, storage.read(path))
    with _readable(content.what):
        return frozenset(_sidecars(location, [content]))


def _parts(storage: Storage, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    # not by `open_read`: a table that is made again at the same place has checkpoints of the same names
    if len(paths) == 1:
        yield paths[0], storage.read(paths[0])
        return
    for path, data in _read_each(storage, paths):
        if data is None:
            raise NotFound(f"{path} does not exist: it was removed since it was listed")
        yield path, data


def _read_each(storage: Storage, paths: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
    for start in range(0, len(paths), _TOGETHER):
        some = paths[start : start + _TOGETHER]
        yield from zip(some, storage.read_each(some), strict=True)


def _content(what: str, path: str, data: bytes) -> CheckpointContent:
    """Reads one file: JSON or Parquet, as its name says."""
    with _readable(what):
        if path.endswith(".json"):
            actions = [_given(action) for action in decode(data)]
            adds = pa.array([action["add"] for action in actions if "add" in action], ADD)
            others, summed = [action for action in actions if not action.keys() & _OF_FILES], False
        else:
            summed = check_parquet(data, path)
            adds, others = _actions_of(decoded_parquet(data, summed=summed))
        if unknown := sorted({kind for action in others for kind in action} - _KNOWN):
            raise ValueError(f"it has an action {unknown[0]!r}, which the Delta protocol does not know")
    return CheckpointContent(what, adds, tuple(others), summed)


def _sidecar(what: str, path: str, data: bytes | None, size: int) -> CheckpointContent:
    """Reads a sidecar of a known size in bytes. It has actions of files only."""
    if data is None:
        raise Corrupt(f"{what} does not exist: restore it from a backup", code=_CODE)
    with _readable(what):
        if len(data) != size:
            raise ValueError(f"it has {len(data)} bytes instead of {size}")
        content = _content(what, path, data)
        if content.others:
            raise ValueError("it has other actions than those of files")
    return content


def _sidecars(location: str, contents: Iterable[CheckpointContent]) -> dict[str, int]:
    """Returns the paths of the sidecars that some files name, with their sizes in bytes.

    Raises:
        ValueError: a name is none of a sidecar.
    """
    sidecars: dict[str, int] = {}
    for named in (action["sidecar"] for content in contents for action in content.others if "sidecar" in action):
        if (relative := layout.sidecar_path(named["path"])) is None:
            raise ValueError(f"it names a sidecar {named['path']!r}")
        sidecars[layout.join(location, relative)] = int(named["sizeInBytes"])
    return sidecars


def _joined(version: int, contents: Sequence[CheckpointContent]) -> CheckpointContent:
    """Returns all actions of a checkpoint.

    Raises:
        ValueError: they are not those of one version: two writers have mixed their parts, or one is damaged.
    """
    adds = contents[0].adds if len(contents) == 1 else pa.concat_arrays([content.adds for content in contents])
    others = [action for content in contents for action in content.others]
    summed = all(content.summed for content in contents)
    if len(contents) > 1 or not summed:
        paths = pc.struct_field(adds, "path")
        if pc.count_distinct(paths).as_py() != len(paths):
            raise ValueError("it has a file twice")
    counts = Counter(kind for action in others for kind in action)
    for kind in ("metaData", "protocol"):
        if counts[kind] != 1:
            raise ValueError(f"it has {counts[kind]} actions {kind!r} instead of one")
    for action in others:
        if (own := action.get("checkpointMetadata")) is not None and own["version"] != version:
            raise ValueError(f"it is one of version {own['version']}")
    own_only = tuple(action for action in others if not action.keys() & _OF_V2)
    return CheckpointContent(contents[0].what, adds, own_only, summed)


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
                _check_values(content.adds, state.definition)
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


def _check_values(adds: pa.StructArray, definition: TableDefinition) -> None:
    """Checks what is decoded when somebody needs it, for files without checksums: then it is too late to read another.

    Keys are not among it: whoever decodes one that is damaged gets the error.
    """
    check_statistics(adds, definition.partition_by)
    for name in definition.partition_by:
        texts = partition_texts(adds).of(name).unique().to_pylist()
        with well_formed(f"a value of the partition column {name}", code=_CODE):
            partition_column_of(texts, definition.schema.column(name).type)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Makes all errors of decoding a part of a checkpoint errors of the tree."""
    with decoding(what, code=_CODE), well_formed(what, code=_CODE):
        yield


def _actions_of(rows: pa.Table) -> tuple[pa.StructArray, list[Action]]:
    """Returns the ``add`` actions of a Parquet file, and all others but ``remove``.

    A file without a column for the former names sidecars, or is one whose files have all been removed.
    """
    names = [name for name in rows.column_names if rows.column(name).null_count < rows.num_rows]
    if "add" in rows.column_names or not {"remove", "sidecar"} & set(names):
        adds = rows.column("add").cast(ADD).combine_chunks()
    else:
        adds = pa.nulls(rows.num_rows, ADD)
    neither = pc.is_null(adds)
    if "remove" in names:
        neither = pc.and_(neither, pc.is_null(rows.column("remove")))
    others = rows.select([name for name in names if name not in _OF_FILES])
    found = others.filter(neither).to_pylist(maps_as_pydicts="strict") if others.num_columns else []
    last = adds.slice(adds.null_count)  # where ours are
    files = adds.filter(pc.is_valid(adds)) if last.null_count else last
    return files, [_given(row) for row in found]


def _given(row: Action) -> Action:
    return {kind: value for kind, value in row.items() if value is not None}


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

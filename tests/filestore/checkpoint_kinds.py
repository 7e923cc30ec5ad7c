"""Writes each kind of checkpoint that the Delta protocol allows, from a table's entries and without the product."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["FEATURE", "KINDS", "Kind", "forget_entries", "set_feature", "sidecars_of", "write_kind"]

Action = dict[str, Any]
FEATURE = "v2Checkpoint"

_MAP = pa.map_(pa.string(), pa.string())
_VECTOR = {"storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32(), "sizeInBytes": pa.int32()}
_OF_FILE = {"path": pa.string(), "partitionValues": _MAP, "size": pa.int64(), "dataChange": pa.bool_()}
_OF_FILE |= {"deletionVector": pa.struct({**_VECTOR, "cardinality": pa.int64()})}
_OF_FILES = {
    "add": pa.struct({**_OF_FILE, "modificationTime": pa.int64(), "stats": pa.string(), "tags": _MAP}),
    "remove": pa.struct({**_OF_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_()}),
}
_FEATURES = {"readerFeatures": pa.list_(pa.string()), "writerFeatures": pa.list_(pa.string())}
_METADATA = {
    **dict.fromkeys(("id", "name", "description", "schemaString"), pa.string()),
    "format": pa.struct({"provider": pa.string(), "options": _MAP}),
    "partitionColumns": pa.list_(pa.string()),
    "createdTime": pa.int64(),
    "configuration": _MAP,
}
_V1 = {
    "metaData": pa.struct(_METADATA),
    "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(), **_FEATURES}),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    **_OF_FILES,
}
_SIDECAR = {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _MAP}
_V2 = _V1 | {
    "checkpointMetadata": pa.struct({"version": pa.int64(), "tags": _MAP}),
    "sidecar": pa.struct(_SIDECAR),
}


@dataclass(slots=True)
class Live:
    """The actions of a version that a checkpoint has, and sidecars that have those of its files already."""

    files: list[Action] = field(default_factory=list)
    others: list[Action] = field(default_factory=list)
    sidecars: Sequence[Path] = ()

    @classmethod
    def at(cls, log: Path, version: int) -> Live:
        """Replays the entries (Delta protocol, "Action Reconciliation"): a file's key is its path and its vector."""
        adds, gone, others = dict[str, Action](), dict[str, Action](), dict[str, Action]()
        for number in range(version + 1):
            actions = [json.loads(line) for line in (log / f"{number:020d}.json").read_text().splitlines()]
            for remove in (action["remove"] for action in actions if "remove" in action):
                adds.pop(remove["path"], None)
                gone[_key(remove)] = {"remove": remove | {"dataChange": False}}
            for action in actions:
                [(kind, value)] = action.items()
                if kind == "add":
                    adds[value["path"]] = {"add": value | {"dataChange": False}}
                    gone.pop(_key(value), None)
                elif kind in ("txn", "metaData", "protocol", "domainMetadata"):
                    others[f"{kind} {value.get('appId') or value.get('domain')}"] = action
        kept = [other for other in others.values() if not other.get("domainMetadata", {}).get("removed")]
        return cls([*adds.values(), *gone.values()], kept)


def _key(action: Action) -> str:
    vector = action.get("deletionVector") or {}
    return f"{action['path']} {vector.get('pathOrInlineDv')} {vector.get('offset')}"


def _parquet(path: Path, actions: Sequence[Action], kinds: dict[str, pa.DataType]) -> None:
    path.parent.mkdir(exist_ok=True)
    columns = {kind: pa.array([action.get(kind) for action in actions], shape) for kind, shape in kinds.items()}
    pq.write_table(pa.table(columns), path)


def _classic(log: Path, version: int, live: Live, _: random.Random) -> None:
    _parquet(log / f"{version:020d}.checkpoint.parquet", [*live.others, *live.files], _V1)


def _multi_part(log: Path, version: int, live: Live, dice: random.Random) -> None:
    parts: list[list[Action]] = [[], [], []]
    for action in (*live.others, *live.files):
        parts[dice.randrange(3)].append(action)
    for number, part in enumerate(parts, 1):
        _parquet(log / f"{version:020d}.checkpoint.{number:010d}.{3:010d}.parquet", part, _V1)


def _v2(named: str, ends: str = "parquet", *, sidecars: bool = True) -> Callable[..., None]:
    def write(log: Path, version: int, live: Live, dice: random.Random) -> None:
        actions: list[Action] = [{"checkpointMetadata": {"version": version}}, *live.others]
        if live.sidecars:
            actions += map(_named, live.sidecars)
        elif sidecars:
            files, split = dice.sample(live.files, len(live.files)), dice.randint(0, len(live.files))
            for some in (files[:split], files[split:]):
                path = log / "_sidecars" / f"{uuid.UUID(int=dice.getrandbits(128), version=4)}.parquet"
                _parquet(path, some, _OF_FILES)
                actions.append(_named(path))
        else:
            actions += live.files
        unique = f".{uuid.UUID(int=dice.getrandbits(128), version=4)}" if named == "uuid" else ""
        path = log / f"{version:020d}.checkpoint{unique}.{ends}"
        if ends == "json":
            path.write_text("".join(json.dumps(action) + "\n" for action in actions))
        else:
            _parquet(path, actions, _V2)

    return write


def _named(sidecar: Path) -> Action:
    written = sidecar.stat()
    named = {"path": sidecar.name, "sizeInBytes": written.st_size, "modificationTime": written.st_mtime_ns // 10**6}
    return {"sidecar": named}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of checkpoint.

    Attributes:
        write: Writes one.
        v2: Whether the protocol has to have the feature.
        sidecars: Whether its files are in sidecars.
    """

    write: Callable[[Path, int, Live, random.Random], None]
    v2: bool = True
    sidecars: bool = False


KINDS = {
    "classic": Kind(_classic, v2=False),
    "multi-part": Kind(_multi_part, v2=False),
    "v2-parquet": Kind(_v2("uuid"), sidecars=True),
    "v2-json": Kind(_v2("uuid", "json"), sidecars=True),
    "v2-parquet-flat": Kind(_v2("uuid", sidecars=False)),
    "v2-json-flat": Kind(_v2("uuid", "json", sidecars=False)),
    "v2-classic-name": Kind(_v2("classic"), sidecars=True),
    "v2-classic-name-flat": Kind(_v2("classic", sidecars=False)),
}


def write_kind(
    location: str, kind: str, version: int, *, hint: bool = False, reuse: Sequence[Path] = (), without: int = 0
) -> list[Path]:
    """Writes a checkpoint of a version from the entries, all of which must be there.

    Args:
        location: The table.
        kind: The kind, a key of `KINDS`.
        version: The version.
        hint: Whether it is named as the last one.
        reuse: Sidecars that are named instead of new ones; they have to have the version's files.
        without: How many of the version's files are left out.

    Returns:
        Its files in the log, without sidecars.
    """
    log, before = Path(location, "_delta_log"), set(Path(location, "_delta_log").glob("*.checkpoint*"))
    live = Live.at(log, version)
    KINDS[kind].write(log, version, Live(live.files[without:], live.others, reuse), random.Random(f"{kind} {version}"))
    if hint:
        more = {"parts": 3} if kind == "multi-part" else {}
        (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 1, **more}))
    return sorted(set(log.glob("*.checkpoint*")) - before)


def sidecars_of(location: str) -> list[Path]:
    """Returns all sidecars of a table."""
    return sorted(Path(location, "_delta_log", "_sidecars").glob("*.parquet"))


def set_feature(location: str) -> None:
    """Gives a table the feature of V2 checkpoints, as if it had been created with it."""
    path = Path(location, "_delta_log", f"{0:020d}.json")
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    actions[0]["commitInfo"]["tablestore"].pop("crc32", None)
    for kind in ("readerFeatures", "writerFeatures"):
        next(action["protocol"] for action in actions if "protocol" in action)[kind].append(FEATURE)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def forget_entries(location: str, before: int) -> None:
    """Removes the entries of earlier versions."""
    for version in range(before):
        Path(location, "_delta_log", f"{version:020d}.json").unlink()

"""Tables of `tests.bench.states` that consist of metadata only: a million files without a byte of data.

**narrow**: three columns, one file in each partition. **wide**: ten columns, 365 partitions of 16 buckets, dead rows in
3 of 10 files. They are as writers and compactors leave them, so that no slot needs compaction.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import string
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import tablestore
from filestore import layout
from filestore.commit.plan import commit_info
from filestore.commit.proposal import Proposal
from filestore.delta.actions import Action, add_action, remove_action
from filestore.delta.add_files import rows_of
from filestore.delta.adds import totals_of
from filestore.delta.by_slot import BySlot
from filestore.delta.checkpoint import is_due, write_checkpoint
from filestore.delta.columns import ColumnFiles
from filestore.delta.entry import encode
from filestore.delta.log import DeltaLog
from filestore.delta.state import TableState
from filestore.model.files import DataFile, DeletionVector, Slot
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage

__all__ = ["NAME", "SHAPES", "Shape", "location", "log_of", "make_files", "make_versions", "with_same_entries"]

NAME = "bench.t"
_LOADED = 50_000
"""The most files of one commit."""
_OPTIONS = {"log.system": "none", "compaction.in-writer": "true"}
_FIRST_DAY, _NEW_DAY = 1_700_000_000, 1_900_000_000
_DAY = 86_400
_Z85 = string.digits + string.ascii_letters + ".-:+=^!/*?&<>()[]{}@%$#"


@dataclass(frozen=True)
class Shape:
    """Tables of one kind, of any number of files.

    Attributes:
        columns: The columns.
        primary_key: The key; its first column is the partition's.
        options: The options beside those of all.
        file: Makes a file by its number.
        row: Makes a row of a partition that no file of these has, by a number; its key is unique.
        conditions: What scans ask for, by what it is about; each leaves few files.
    """

    columns: str
    primary_key: Sequence[str]
    options: Mapping[str, str]
    file: Callable[[int, random.Random], DataFile]
    row: Callable[[int], dict[str, Any]]
    conditions: Mapping[str, str]

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.primary_key)


def _statistics(rows: int, low: Mapping[str, Any], high: Mapping[str, Any]) -> str:
    found = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    return json.dumps(found, separators=(",", ":"))


def _path(partition: str, bucket: int, dice: random.Random) -> str:
    return f"{partition}/bucket-{bucket:05d}/{uuid.UUID(int=dice.getrandbits(128), version=4)}.parquet"


def _narrow(number: int, dice: random.Random) -> DataFile:
    values = {"p": number, "id": number, "v": number + 0.5}
    keys = f"[{number}]", f"[{number}]"
    slot = Slot((("p", str(number)),), 0)
    stats = _statistics(1, values, values)
    return DataFile(_path(f"p-{number}", 0, dice), slot, 1205, 1, 1_764_000_000_000 + number, stats, 0, *keys)


def _wide(number: int, dice: random.Random) -> DataFile:
    """A file of a slot whose files follow each other in the order of keys, as a compactor leaves them."""
    day, bucket, before = number % 365, number // 365 % 16, number // (365 * 16)
    dt = _day(_FIRST_DAY, day)
    rows, low, name = dice.randrange(900_000, 1_000_000), before * 10**6 + dice.randrange(1000), _text(dice)
    high, price = low + 990_000, number + dice.random()
    least = {
        "dt": dt,
        "id": low,
        "customer": f"aa{name}",
        "amount": 0.01,
        "ts": f"{dt}T00:00:{number % 60:02d}.000001Z",
    }
    most = {"dt": dt, "id": high, "customer": f"zz{name}", "amount": 99_999.99, "ts": f"{dt}T23:59:59.999999Z"}
    least |= {"price": price, "qty": 1, "city": "Aachen", "state": "done", "note": f"a {name[::-1]}"}
    most |= {"price": price + 1, "qty": 100, "city": "Zwickau", "state": "open", "note": f"z {name[::-1]}"}
    vector = None
    if dice.random() < 0.3:
        name = "".join(dice.choices(_Z85, k=20))
        vector = DeletionVector("u", name, 1, dice.randrange(40, 4000), dice.randrange(1, rows // 10))
    return DataFile(
        _path(f"dt-{dt}", bucket, dice),
        Slot((("dt", dt),), bucket),
        rows * 150,
        rows,
        1_764_000_000_000 + number,
        _statistics(rows, least, most),
        1 + before % 3,
        f"[{low}]",
        f"[{high}]",
        vector,
    )


def _text(dice: random.Random) -> str:
    return "".join(dice.choices(string.ascii_lowercase, k=10))


def _day(first: int, number: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(first + number * _DAY))


SHAPES = {
    "narrow": Shape(
        "p INT, id BIGINT, v DOUBLE",
        ["p", "id"],
        {},
        _narrow,
        lambda number: {"p": 100_000_000 + number, "id": number, "v": 1.0},
        {"a partition": "p = 7", "the key": "id < 9", "statistics": "v < 9"},
    ),
    "wide": Shape(
        "dt STRING, id BIGINT, customer STRING, amount DECIMAL(12,2), ts TIMESTAMP, price DOUBLE, qty INT, city STRING,"
        " state STRING, note STRING",
        ["dt", "id"],
        {"bucket": "16"},
        _wide,
        lambda number: {"dt": _day(_NEW_DAY, number), "id": number},
        {"a partition": f"dt = '{_day(_FIRST_DAY, 7)}'", "the key": "id = 500", "statistics": "price < 9"},
    ),
}


def location(folder: Path) -> str:
    """Returns where the table of a store is."""
    [log] = folder.glob(f"*/*/{layout.DELTA_LOG}")
    return str(log.parent)


def log_of(folder: Path) -> DeltaLog:
    return DeltaLog(LocalStorage(), location(folder))


def make_files(folder: Path, shape: Shape, files: int) -> TableState:
    """Makes a table of so many files: loads, then a commit of one file. Returns its newest version.

    Its entries are made here, since the product would keep all files of a version without a checkpoint as objects.
    """
    log, state, dice, parts = _created(folder, shape), log_of(folder).at(0), random.Random(7), []
    for start in range(0, files, _LOADED):
        whole = [shape.file(number, dice) for number in range(start, min(files - 1, start + _LOADED))]
        for some in filter(None, (whole, [shape.file(files - 1, dice)] if start + _LOADED >= files else [])):
            actions = _entry(state, [add_action(file, data_change=True) for file in some])
            _write(log, state.version + 1, actions)
            state = state.next(state.version + 1, actions[:1])
            parts.append(rows_of(some))
    adds = pa.concat_arrays(parts)
    columns = ColumnFiles(adds, shape.primary_key[:1], sorted_by_key=True)
    return replace(state, files=BySlot.on(columns), totals=totals_of(adds))


def make_versions(folder: Path, shape: Shape, versions: int, files: int = 10) -> None:
    """Makes a table of so many versions and few files, each of which replaces one; with checkpoints, when due."""
    log, dice = _created(folder, shape), random.Random(7)
    state, live = log.at(0), list[DataFile]()
    for number in range(versions):
        live.append(shape.file(number, dice))
        gone = [remove_action(live.pop(0), state.timestamp_ms, data_change=True)] if len(live) > files else []
        actions = _entry(state, [*gone, add_action(live[-1], data_change=True)])
        _write(log, state.version + 1, actions)
        state = state.next(state.version + 1, actions)
        if is_due(state):
            write_checkpoint(log, state)
            state = state.with_checkpoint(state.version)


def _created(folder: Path, shape: Shape) -> DeltaLog:
    with tablestore.connect(str(folder)) as store:
        store.create_database(NAME.partition(".")[0])
        options = {**_OPTIONS, **shape.options}
        by, key = list(shape.primary_key[:1]), list(shape.primary_key)
        store.create_table(NAME, shape.columns, primary_key=key, partition_by=by, options=options)
    return log_of(folder)


def _entry(state: TableState, actions: Sequence[Action]) -> list[Action]:
    proposal = Proposal(Operation.WRITE, str(uuid.uuid4()), state.version)
    return [commit_info(proposal, state.version, state.timestamp_ms + 1), *actions]


def _write(log: DeltaLog, version: int, actions: Sequence[Action]) -> None:
    log.storage.write_new(layout.join(log.location, layout.log_entry_path(version)), encode(actions))


def with_same_entries(folder: Path, copy: Path) -> str:
    """Makes a table of the same entries elsewhere, without copying them. Returns where it is."""
    shutil.copytree(folder, copy, copy_function=os.link, ignore=shutil.ignore_patterns("catalog.db*"))
    return location(copy)

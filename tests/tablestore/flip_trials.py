"""Trials of damage: bits of a file of a table flip, and every reader says what it finds.

A trial runs on a copy of the warehouse, in a process that is used again and again (`TrialProcess`), since damage could
end it. A reader is right, or it fails with an error that names the file: nothing else is allowed.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa

import tablestore
from filestore import layout
from filestore.delta.vectors import vector_file
from filestore.errors import Corrupt, NotFound, TableStoreError
from tablestore import Store, Table
from tests.flips import flipped
from tests.folders import memory_folder
from tests.processes import PROCESSES
from tests.tables import in_order

__all__ = ["TABLES", "Trial", "TrialProcess", "Verdicts", "faults", "files_of", "filled"]

TABLES: Mapping[str, Mapping[str, str]] = {
    "logged": {"file.bloom-filter": "true", "checkpoint.interval": "3"},
    "fed": {"log.system": "none", "changelog-producer": "lookup", "sequence.field": "seq", "file.compression": "none"},
    "later": {"log.system": "none", "write-mode": "merge-on-read"},
}
_COVERED = ("data", "run", "tombstones", "change data", "checkpoint", "entry")  # by a checksum of all their bytes
_ROWS = 200
_KEYS = list(range(0, 300, 29))

Verdicts = dict[str, str]
"""What became of each reader, such as ``right``, ``wrong`` or ``corrupt``; for the doctor ``named`` or ``healthy``."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A damage.

    Attributes:
        table: The table's name.
        kind: The kind of file.
        path: The file, relative to the table.
        bits: How many bits flip.
        seed: Which ones.
    """

    table: str
    kind: str
    path: str
    bits: int
    seed: int

    def apply(self, warehouse: Path) -> None:
        """Flips the bits; in SQLite's files of bytes that are not zero, since most of their pages are empty."""
        file = warehouse / "shop" / self.table / self.path
        data, dice = file.read_bytes(), random.Random(self.seed)
        if self.kind != "log":
            file.write_bytes(flipped(data, dice, self.bits))
            return
        used = [at for at, byte in enumerate(data) if byte]
        changed = bytearray(data)
        for at in dice.sample(used, self.bits):
            changed[at] ^= 1 << dice.randrange(8)
        file.write_bytes(changed)


def faults(trial: Trial, verdicts: Verdicts) -> list[str]:
    """Returns what must not happen. Pure."""
    allowed = {"right", "corrupt"} | ({"gap"} if trial.kind == "log" else set())
    readers = {reader: verdict for reader, verdict in verdicts.items() if reader != "doctor"}
    wrong = [f"{reader}: {verdict}" for reader, verdict in readers.items() if verdict not in allowed]
    harmless = set(readers.values()) == {"right"} and trial.kind not in _COVERED
    if verdicts.get("doctor", "named") != "named" and not harmless:
        wrong.append(f"doctor: {verdicts['doctor']}")
    return wrong


def filled(folder: Path) -> Path:
    """Makes a warehouse with a table of each sort, which no process has open."""
    with tablestore.connect(folder) as store:
        store.create_database("shop")
        for name, options in TABLES.items():
            _fill(store, name, options)
    return folder


def _fill(store: Store, name: str, options: Mapping[str, str]) -> None:
    columns = "id BIGINT, v DOUBLE, s STRING, seq INT"
    table = store.create_table(f"shop.{name}", columns, primary_key=["id"], options={"bucket": "2", **options})
    dice = random.Random(name)
    for number in range(3):
        ids = range(50 * number, 50 * number + _ROWS)
        _put(table, "+U", [{"id": n, "v": dice.random(), "s": f"text {n % 50}", "seq": number} for n in ids])
        if number == 1:
            table.compact(full=True)
    _put(table, "-D", [{"id": n, "seq": 9} for n in range(0, _ROWS, 7)])
    if name == "later":
        table.compact()
        _put(table, "+U", [{"id": n, "v": 1.5, "s": "late", "seq": 10} for n in range(0, _ROWS, 5)])
    elif name == "logged":
        table.write(table.scan().to_arrow(), overwrite=True)  # whose record in the log is a control record
        _put(table, "+U", [{"id": n, "v": 2.5, "s": "again", "seq": 11} for n in range(0, _ROWS, 3)])


def _put(table: Table, kind: str, rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([field.with_nullable(True) for field in table.schema]).append(pa.field("_kind", pa.string()))
    table.write(pa.Table.from_pylist([{**row, "_kind": kind} for row in rows], schema))


def files_of(table: Table) -> dict[str, list[str]]:
    """Returns the files that the newest version and its history need, by kind and relative to the table."""
    state, log = table.filestore.state(), table.filestore.delta_log
    versions, checkpoints = log.listed()
    entries = [entry for version in versions if (entry := log.read_entry(version)) is not None]
    found = {
        "data": sorted(file.path for file in state.files),
        "vector": sorted({vector_file(f.vector) for f in state.files if f.vector is not None}),
        "run": [run.path for run in state.pending],
        "tombstones": [run.path for run in state.tombstones],
        "change data": [a["cdc"]["path"] for entry in entries for a in entry.actions if "cdc" in a],
        "checkpoint": [layout.checkpoint_path(version) for version in checkpoints],
        "entry": [layout.log_entry_path(version) for version in versions],
        "last checkpoint": [layout.LAST_CHECKPOINT] if checkpoints else [],
    }
    if table.opened.log_config() is not None:
        found["log"] = [f"_log/bucket-{bucket:05d}.sqlite" for bucket in range(state.definition.buckets)]
        found["log.json"] = ["_log/log.json"]
    return {kind: paths for kind, paths in found.items() if paths}


def _readers(table: Table) -> dict[str, Callable[[], object]]:
    """Returns what is tried, in this order; the last one changes the table."""

    def compacted() -> object:
        table.compact(full=True)
        return _rows(table.scan().to_arrow())

    has_log = table.opened.log_config() is not None
    return {
        "scan": lambda: _rows(table.scan().to_arrow()),
        "scan where": lambda: _rows(table.scan(["id", "v"], where="v > 0.5 AND id < 150").to_arrow()),
        "get": lambda: table.get(_KEYS).to_pylist(),
        "follow": lambda: _followed(table, "changelog"),
        **({"follow the log": lambda: _followed(table, "upsert")} if has_log else {}),
        "compaction": compacted,
    }


def _rows(rows: pa.Table) -> object:
    return in_order(rows.to_pylist())


def _followed(table: Table, mode: str) -> object:
    """The rows of version 1, and then all changes: with the mode ``upsert`` from the log."""
    if table.filestore.state().pending:
        return None  # it has no changes
    feed = table.follow("full", version=1, mode=mode, stop=lambda: True)
    return [in_order(batch.to_pylist()) for batch in feed]


def _tried(store: Store, name: str, expected: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields what becomes of each reader."""
    for reader, read in _readers(store.table(name)).items():
        if reader == "compaction":
            yield "doctor", _examined(store, name)
        try:
            yield reader, "right" if read() == expected[reader] else "wrong"
        except Corrupt as error:
            yield reader, "corrupt" if _names(error.message) else f"nameless: {error.message}"
        except NotFound as error:
            yield reader, "gap" if error.code == "log-gap" else "other"
        except TableStoreError:
            yield reader, "other"


def _names(message: str) -> bool:
    """Returns whether a message says which file is damaged, or which part of the log."""
    return any(part in message for part in (".parquet", ".bin", ".json", ".sqlite", "bucket ", "the log of table"))


def _examined(store: Store, name: str) -> str:
    try:
        return "healthy" if store.examine(name).healthy else "named"
    except Corrupt as error:
        return "named" if _names(error.message) else f"nameless: {error.message}"


def _verdicts(store: Store, name: str, expected: Mapping[str, object]) -> Verdicts:
    """Tries everything on a table, which perhaps cannot be opened."""
    try:
        return dict(_tried(store, name, expected))
    except Corrupt as error:
        return {"open": "corrupt" if _names(error.message) else "nameless", "doctor": _examined(store, name)}


@contextmanager
def _copied(base: Path, damage: Callable[[Path], None] | None = None) -> Iterator[Store]:
    """Opens a copy of the warehouse, which is damaged before."""
    with memory_folder() as folder:
        copy = shutil.copytree(base, folder / "lake")
        if damage is not None:
            damage(copy)
        with tablestore.connect(copy) as store:
            yield store


class TrialProcess:
    """A process that runs trials; if one ends it, the next one gets another.

    Args:
        base: The warehouse, of which each trial gets a copy.
        serve: Runs trials in the process.
    """

    def __init__(self, base: Path, serve: Callable[[Path, Connection], None] | None = None) -> None:
        self._base = base
        self._serve = serve or _serve
        self._running: tuple[BaseProcess, Connection] | None = None

    def run(self, trial: Trial | str) -> Verdicts:
        """Runs a trial; `ended` if the process has not survived it."""
        if self._running is None:
            here, there = PROCESSES.Pipe()
            process = PROCESSES.Process(target=self._serve, args=(self._base, there), daemon=True)
            process.start()
            there.close()
            self._running = process, here
        process, here = self._running
        try:
            here.send(trial)
            verdicts: Verdicts = here.recv()
        except (EOFError, ConnectionError):
            self.close()
            return {"process": "ended"}
        return verdicts

    def close(self) -> None:
        """Ends the process."""
        if self._running is not None:
            process, here = self._running
            here.close()
            process.join()
            self._running = None


def _serve(base: Path, orders: Connection) -> None:
    """Runs trials until the other end is closed."""
    expected: dict[str, dict[str, object]] = {}
    while True:
        try:
            trial: Trial = orders.recv()
        except EOFError:
            return
        name = f"shop.{trial.table}"
        if name not in expected:
            with _copied(base) as store:
                expected[name] = {reader: read() for reader, read in _readers(store.table(name)).items()}
        try:
            with _copied(base, trial.apply) as store:
                found = _verdicts(store, name, expected[name])
            orders.send(found)
        except BaseException as error:  # noqa: BLE001  # that none passes is what is tested
            orders.send({"other": f"{type(error).__name__}: {error}"})

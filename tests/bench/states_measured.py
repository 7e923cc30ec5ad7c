"""What each process of `tests.bench.states` measures: one thing, once, after it has used a small table.

So nothing is loaded or compiled meanwhile, and what another measurement keeps in memory does not count.
"""

from __future__ import annotations

import gc
import pickle
import random
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import deltalake
import pyarrow as pa
from sqlalchemy import insert, select

import tablestore
from catalog_service.database.engine import default_database_url, open_engine
from catalog_service.database.schema import TABLES
from catalog_service.use_cases.opening import open_service
from compaction.compact import plan_compaction
from filestore.ambient import system_ambient
from filestore.beside import finish
from filestore.delta.checkpoint import write_checkpoint
from filestore.delta.log import DeltaLog
from filestore.reading.scan import plan_scan
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore import Table
from tests.bench.states_tables import NAME, SHAPES, log_of, make_files, make_versions, with_same_entries

OPERATIONS, WARM = 40, 5
WRITE, GET, AGAIN = "write of one row into a new slot", "get of its key", "second write of its key"

Result = TypeVar("Result")
_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


def in_process(work: Callable[..., Result], *arguments: object) -> Result:
    """Does work in a process of its own, in which all modules are loaded."""
    with ProcessPoolExecutor(1, mp_context=_PROCESSES) as pool:
        return pool.submit(work, *arguments).result()


@dataclass(frozen=True)
class Cost:
    """Milliseconds, and those of the processor in all threads."""

    wall: float
    processor: float

    @classmethod
    def least(cls, costs: Sequence[Cost]) -> Cost:
        return cls(min(c.wall for c in costs), min(c.processor for c in costs))

    @classmethod
    def median(cls, costs: Sequence[Cost]) -> Cost:
        return cls(statistics.median(c.wall for c in costs), statistics.median(c.processor for c in costs))


def taken(work: Callable[[], Result], then: Callable[[], object] = lambda: None) -> tuple[Cost, Result]:
    """Does work, then waits for what it has others do: the processor's time has that, too."""
    begin, processor = time.perf_counter(), time.process_time()
    result = work()
    wall = time.perf_counter() - begin
    then()
    return Cost(wall * 1000, (time.process_time() - processor) * 1000), result


def status(name: str) -> int:
    """Bytes of this process (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:"))) * 1024


def kept_bytes() -> int:
    """Bytes that are in this process's memory and in no file, once everything is returned that can be."""
    finish()
    gc.collect()
    pa.default_memory_pool().release_unused()
    return status("RssAnon")


def ours(place: str) -> object:
    return FileStore.open(LocalStorage(), place, system_ambient())


def lazily(place: str) -> object:
    return deltalake.DeltaTable(place)


def with_files(place: str) -> object:
    table = deltalake.DeltaTable(place)
    return table, table.get_add_actions()


@dataclass(frozen=True)
class Opened:
    """The cost of a state, and how many bytes it keeps, and took at most."""

    cost: Cost
    kept: int
    peak: int


def opened(way: Callable[[str], object], place: str, small: str) -> Opened:
    way(small)
    before, resident = kept_bytes(), status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    cost, found = taken(lambda: way(place))
    peak = status("VmHWM") - resident
    if isinstance(found, FileStore):
        finish(600)
        found.state()  # packed now
    kept = kept_bytes() - before
    del found
    return Opened(cost, kept, peak)


def made(folder: Path, small: Path, shape: str, files: int) -> Cost:
    """Makes a table, and returns the cost of our checkpoint."""
    state, log = make_files(folder, SHAPES[shape], files), log_of(folder)
    other_log = DeltaLog(LocalStorage(), with_same_entries(small, folder.with_name(f"{folder.name}-warm")))
    write_checkpoint(other_log, other_log.latest())
    return taken(lambda: write_checkpoint(log, state))[0]


def versions_made(folder: Path, shape: str, versions: int) -> None:
    make_versions(folder, SHAPES[shape], versions)


def made_old(place: str, small: str) -> Cost:
    """Writes a checkpoint as versions before 2026-11-29 did, by deltalake."""
    deltalake.DeltaTable(small).create_checkpoint()
    return taken(lambda: deltalake.DeltaTable(place).create_checkpoint())[0]


def looked_over(place: str, small: str) -> Cost:
    """The first time that a process asks which slots of a table need compaction."""
    plan_compaction(DeltaLog(LocalStorage(), small).latest())
    state = DeltaLog(LocalStorage(), place).latest()
    return taken(lambda: plan_compaction(state))[0]


def planned(place: str, small: str, where: str) -> tuple[Cost, Cost]:
    """Plans a scan twice."""
    plan_scan(DeltaLog(LocalStorage(), small).latest(), where=where)
    state = DeltaLog(LocalStorage(), place).latest()
    first, then = (taken(lambda: plan_scan(state, where=where))[0] for _ in range(2))
    return first, then


def pickled(place: str, small: str) -> tuple[Cost, int]:
    pickle.loads(pickle.dumps(DeltaLog(LocalStorage(), small).latest().files))
    files = DeltaLog(LocalStorage(), place).latest().files
    cost, (data, _) = taken(lambda: (data := pickle.dumps(files), pickle.loads(data)))
    return cost, len(data)


def earlier(place: str, small: str, version: int) -> Cost:
    """The state of a version that is not the newest one."""
    ours(small)
    log = DeltaLog(LocalStorage(), place)
    return taken(lambda: log.at(version))[0]


def used(folders: Mapping[int, Path], shape: str, turn: int) -> Mapping[tuple[int, str], Cost]:
    """Writes rows into new slots, looks their keys up, and writes them again, in turn in tables of several sizes.

    The writers compact what needs it, and write checkpoints. What a table does beside is over before the next one is
    used.
    """
    dice, found = random.Random(turn), defaultdict(list)
    rows = [SHAPES[shape].row(turn * 10_000 + number) for number in dice.sample(range(10_000), OPERATIONS + WARM)]
    with ExitStack() as stack:
        stores = {size: stack.enter_context(tablestore.connect(str(folder))) for size, folder in folders.items()}
        tables = {size: store.table(NAME) for size, store in stores.items()}
        for what in (WRITE, GET, AGAIN):
            for row in rows:
                for size, table in tables.items():
                    found[size, what].append(used_once(table, what, row, SHAPES[shape].key(row)))
            dice.shuffle(rows)
        for table in tables.values():
            table.in_writer.close()
    return {key: Cost.median(costs[WARM:]) for key, costs in found.items()}


def used_once(table: Table, what: str, row: Mapping[str, object], key: object) -> Cost:
    def quiet() -> None:
        while table.in_writer.busy:
            time.sleep(0.001)
        finish(600)

    if what != GET:
        return taken(partial(table.write, [row]), quiet)[0]
    cost, got = taken(partial(table.get, [key]), quiet)
    if len(got) != 1:
        raise SystemExit(f"{len(got)} rows have the key {key}")
    return cost


def catalog(folder: Path, tables: int) -> Mapping[str, Cost]:
    """Measures a catalog with so many tables, of which all but few are only rows."""
    database = NAME.partition(".")[0]
    with tablestore.connect(str(folder)) as store:
        store.create_database(database)

        def create(name: str) -> Table:
            return store.create_table(name, "id BIGINT", options={"log.system": "none"})

        create(f"{database}.t")
        engine = open_engine(default_database_url(str(folder)))
        with engine.begin() as connection:
            row = dict(connection.execute(select(TABLES)).mappings().one())
            for start in range(0, tables, 10_000):  # one by one they would take minutes
                names = [f"t{number:07d}" for number in range(start, min(tables, start + 10_000))]
                others = [{**row, "name": name, "folder": name, "table_id": str(uuid.uuid4())} for name in names]
                connection.execute(insert(TABLES), others)
        engine.dispose()
        found: dict[str, list[Cost]] = defaultdict(list)
        with closing(open_service(str(folder), default_database_url(str(folder)))) as service:
            for number in range(WARM + OPERATIONS):
                name = f"{database}.new{number}"
                found["create_table"].append(taken(partial(create, name))[0])
                found["table"].append(taken(partial(store.table, name))[0])
                found["page of 10 of list_tables"].append(taken(partial(service.list_tables, database, 10))[0])
                found["list_databases"].append(taken(store.list_databases)[0])
    return {what: Cost.median(costs[WARM:]) for what, costs in found.items()}

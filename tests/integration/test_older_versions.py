"""Processes of an older version of Tablestore work at a table beside those of this one."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

import tablestore
from filestore.errors import NotFound
from tablestore import Store, Table
from tests.depth import Depth
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.warehouses import assert_whole, replay, rows

OLDER = "b4d11307"
"""The last version that knows no new logs."""
ROOT = Path(__file__).parents[2]
WORK = """
import json, sys, tablestore
print(json.dumps(tablestore.__file__), flush=True)
store = tablestore.connect(sys.argv[1])
def create(columns, key, options):
    store.create_table("shop.t", columns, primary_key=key, options=options)
def write(rows):
    return table.write(rows).version
def compact(full):
    table.compact(full)
def scan():
    return table.scan().to_arrow().to_pylist()
def follow(version, stop):
    return [row for batch in table.follow(version=version, stop=stop) for row in batch.to_pylist()]
def problems():
    return [f"{f.code}: {f.message}" for f in table.examine().problems]
table = None
for line in sys.stdin:
    name, arguments = json.loads(line)
    table = None if name == "create" else table or store.table("shop.t")
    print(json.dumps(locals()[name](*arguments)), flush=True)
"""
"""A program that does what its input says: it runs in either version."""


class Worker(Protocol):
    """A process with a table."""

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Has it call one of the functions of `WORK`."""


@contextmanager
def worker(tree: Path, warehouse: Path) -> Iterator[Worker]:
    """Starts a process with the packages of a tree; it lives on, with all that it keeps in memory."""
    command = [sys.executable, "-c", WORK, str(warehouse)]
    environment = {"PYTHONPATH": str(tree), "PATH": ""}
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert Path(json.loads(process.stdout.readline())).is_relative_to(tree)

        def call(name: str, *arguments: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([name, arguments]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield call
        process.stdin.close()


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the older version."""
    found = subprocess.run(["git", "archive", OLDER], cwd=ROOT, capture_output=True)
    if found.returncode:
        pytest.skip(f"no history with {OLDER} is here")
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as tree:
        tree.extractall(folder, filter="data")
    return folder


@pytest.mark.deep
@pytest.mark.parametrize("consistency", ["transactional", "eventual"])
def test_older_writers_keep_the_begin_of_a_new_log(store: Store, older: Path, consistency: str) -> None:
    made = store.create_table(
        "shop.t", "id BIGINT, v STRING", primary_key=["id"], options={"log.consistency": consistency}
    )
    assert isinstance(made, Table)
    made.write([{"id": n, "v": "a"} for n in range(3)])
    with worker(older, Path(made.location).parents[1]) as beside:
        beside("write", [{"id": 1, "v": "b"}])
        shutil.rmtree(Path(made.location) / "_log")
        begun = again(made).new_log()
        assert begun is not None
        for number in range(2):
            beside("write", [{"id": 5 + number, "v": "older"}])
            made.write([{"id": 7 + number, "v": "newer"}])
    table = again(made)
    assert table.filestore.state().log.begins == begun.version
    assert table.examine().problems == ()
    for version in range(begun.version - 1):
        with pytest.raises(NotFound) as caught:
            list(table.follow(version=version, stop=table.filestore.state().version))
        assert caught.value.code == "log-gap"
    known = [{**row, "_kind": "+I"} for row in rows(table, begun.version)]
    stop = table.filestore.state().version
    later = [row for batch in table.follow(version=begun.version, stop=stop) for row in batch.to_pylist()]
    assert replay([*known, *later], ["id"]) == rows(table)


SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "eventual": {"log.consistency": "eventual"},
    "no log": {"log.system": "none", "bucket": "2"},
    "merge on read": {"write-mode": "merge-on-read"},
    "looked up": {"changelog-producer": "lookup"},
    "computed by compaction": {
        "changelog-producer": "full-compaction",
        "log.system": "none",
        "write-mode": "merge-on-read",
        "bucket": "2",
    },
    "kafka": {"log.system": "kafka", "bucket": "2"},
    "eventual in kafka": {"log.system": "kafka", "log.consistency": "eventual"},
    "summed": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "log.system": "none"},
    "summed on read": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "log.system": "none",
        "write-mode": "merge-on-read",
    },
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.kafka if "kafka" in name else ()) for name in SETTINGS])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    found = SETTINGS[request.param]
    if found.get("log.system") != "kafka":
        return found
    broker: KafkaBroker = request.getfixturevalue("kafka_broker")
    return {**found, "log.kafka.bootstrap.servers": broker.bootstrap}


@pytest.mark.deep
def test_processes_of_both_versions_write_read_follow_and_compact_one_table(
    folder: Path, older: Path, options: Mapping[str, str], depth: Depth
) -> None:
    """Each of them sees after each step the rows that a dict has, and follows the changes of both."""
    chosen = random.Random(random.getrandbits(32))
    expected: dict[int, int] = {}
    has_log = options.get("log.system") != "none"
    with tablestore.connect(str(folder)) as store, worker(older, folder) as old, worker(ROOT, folder) as new:
        store.create_database("shop")
        old("create", "id BIGINT, v BIGINT", ["id"], dict(options))
        table = store.table("shop.t")
        followed: dict[str, tuple[int, list[dict[str, Any]]]] = {"old": (0, []), "new": (0, [])}
        for _ in range(depth.times(12, deep=30)):
            at_work = chosen.choice([old, new])
            match chosen.choice(["write", "write", "write", "compact", "compact all"]):
                case "write":
                    given = changes_of(expected, chosen, sums="merge-engine" in options)
                    at_work("write", given)
                case step:
                    at_work("compact", step == "compact all")
            wanted = [{"id": key, "v": value} for key, value in sorted(expected.items())]
            for reader in (old, new):
                assert sorted(reader("scan"), key=lambda row: row["id"]) == wanted
            newest = table.version
            for name, reader in (("old", old), ("new", new)) if has_log else ():
                version, known = followed[name]
                followed[name] = newest, [*known, *reader("follow", version, newest)]
        for _, known in followed.values() if has_log else ():
            assert replay(known, ["id"]) == rows(table)
        assert old("problems") == new("problems") == []
        assert_whole(again(table))


def changes_of(expected: dict[int, int], chosen: random.Random, *, sums: bool) -> list[dict[str, Any]]:
    """Draws the rows of a write, and applies them to what is expected."""
    found = []
    for key in chosen.sample(range(40), chosen.randrange(1, 12)):
        if not sums and key in expected and chosen.random() < 0.3:
            del expected[key]
            found.append({"id": key, "v": None, "_kind": "-D"})
        else:
            value = chosen.randrange(100)
            expected[key] = expected.get(key, 0) + value if sums else value
            found.append({"id": key, "v": value, "_kind": "+U"})
    return found

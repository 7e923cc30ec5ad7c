"""Processes of an older version of Tablestore work at a table beside those of this one."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from filestore.errors import NotFound
from tablestore import Store, Table
from tests.opened import again
from tests.warehouses import replay, rows

OLDER = "b4d11307"
"""The last version that knows no new logs."""
ROOT = Path(__file__).parents[2]
WRITE = """
import json, sys, tablestore
table = tablestore.connect(sys.argv[1]).table("shop.t")
print(json.dumps([tablestore.__file__, table.write(json.loads(sys.argv[2])).version]))
"""


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


def write(older: Path, warehouse: Path, data: list[dict[str, object]]) -> int:
    """Writes with a process of the older version."""
    command = [sys.executable, "-c", WRITE, str(warehouse), json.dumps(data)]
    done = subprocess.run(
        command, cwd=older, env={"PYTHONPATH": str(older), "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    where, version = json.loads(done.stdout)
    assert Path(where).is_relative_to(older)
    return int(version)


@pytest.mark.deep
@pytest.mark.parametrize("consistency", ["transactional", "eventual"])
def test_older_writers_keep_the_begin_of_a_new_log(store: Store, older: Path, consistency: str) -> None:
    made = store.create_table(
        "shop.t", "id BIGINT, v STRING", primary_key=["id"], options={"log.consistency": consistency}
    )
    assert isinstance(made, Table)
    warehouse, data = Path(made.location).parents[1], [{"id": n, "v": "a"} for n in range(3)]
    made.write(data)
    write(older, warehouse, [{"id": 1, "v": "b"}])
    shutil.rmtree(Path(made.location) / "_log")
    begun = again(made).new_log()
    assert begun is not None
    for number in range(2):
        write(older, warehouse, [{"id": 5 + number, "v": "older"}])
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

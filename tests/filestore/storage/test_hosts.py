"""Stores whose URLs name a host, as HDFS and SFTP do; what else they must do is in the conformance suite."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path

import pytest

import tablestore
from filestore.errors import AlreadyExists, NotFound, Unavailable, Unsupported
from filestore.storage.locations import Storages, storage_of
from filestore.storage.schemes import root_of
from tablestore import Table
from tests.filestore.storage import hosted_files  # noqa: F401  # it registers hosted://


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("hdfs://name:8020/a/b", "hdfs://name:8020"),
        ("SFTP://host", "sftp://host"),
        ("memory://a/b", "memory://a"),
        ("/a/b", ""),
        ("file:///a", ""),
        ("file:/a", ""),
    ],
)
def test_the_root_of_a_location(location: str, root: str) -> None:
    assert root_of(location) == root


def test_hosts_are_different_stores() -> None:
    """The host was ignored, so all tables were looked for on the one of the configuration."""
    storages = Storages()
    first, second = "hosted://first:1/t", "hosted://second:1/t"
    assert storages.of(first) is storages.of(f"{first}/below") is not storages.of(second)
    storages.of(first).write_new(f"{first}/x", b"1")
    with pytest.raises(NotFound):
        storages.of(second).read(f"{second}/x")
    assert pickle.loads(pickle.dumps(storages.of(first))).read(f"{first}/x") == b"1"


def test_a_host_that_does_not_answer_is_an_error_that_says_so() -> None:
    with pytest.raises(Unavailable, match=r"cannot open hosted://away:1: .*nobody listens there"):
        storage_of("hosted://away:1/t").exists("hosted://away:1/t/x")


@pytest.mark.skipif(find_spec("paramiko") is not None, reason="the package is installed")
def test_a_file_system_whose_package_is_missing_is_an_error_that_names_it() -> None:
    with pytest.raises(Unsupported, match="paramiko") as refused:
        storage_of("sftp://host/t").exists("sftp://host/t/x")
    assert refused.value.code == "storage-package"


def test_a_table_lives_and_dies_on_its_host(tmp_path: Path) -> None:
    """Listed files lacked the host, so none of them seemed to be below the table's location."""
    warehouse = "hosted://name:8020/lake"
    storage = storage_of(warehouse)
    with tablestore.connect(warehouse, database=f"sqlite:///{tmp_path}/catalog.db") as store:
        store.create_database("shop")
        storage.write_new(f"{warehouse}/shop/taken/x", b"")
        with pytest.raises(AlreadyExists, match=r"hosted://name:8020/lake/shop/taken/x"):
            store.create_table("shop.taken", "id BIGINT", primary_key=["id"], options={"log.system": "none"})
        table = store.create_table("shop.t", "id BIGINT", primary_key=["id"], options={"log.system": "none"})
        assert isinstance(table, Table)
        table.write([{"id": 1}])
        table.write([{"id": 2}])
        assert table.scan().to_arrow().num_rows == 2
        assert {info.path.partition("/shop/")[0] for info in storage.walk(warehouse)} == {warehouse}
        store.drop_table("shop.t")
    assert [info.path for info in storage.walk(warehouse)] == [f"{warehouse}/shop/taken/x"]

"""Tables that Spark's processes open where environment and profile are others than the driver's."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest
from filestore.storage.locations import S3Store, storage_of
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from filestore.table import FileStore
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore.spark.opened import identity_options, opened
from tablestore.spark.settings import s3_settings

S3A = "spark.hadoop.fs.s3a."
IDENTITY = TableIdentity("shop", "orders", "7", "s3://lake/shop/orders")
NAMES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The driver's environment; `executor` makes that of an executor of it."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "config"
    config.write_text("[default]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    return monkeypatch


def executor(driver: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        driver.delenv(name, raising=False)
    driver.setenv("AWS_REGION", "us-west-2")


def settings_of(storage: object) -> S3Settings:
    assert isinstance(storage, ObjectStorage) and isinstance(storage._opens, S3Store)
    return storage._opens.settings.resolved()


@pytest.mark.parametrize("options", [{}, {"path-style": "false"}, {"region": "eu-west-3"}])
def test_tasks_and_planners_use_the_endpoint_that_the_driver_has_found(
    driver: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """S3A had it, and Python's processes asked AWS."""
    driver.setenv("AWS_ENDPOINT_URL", "http://minio.example:9000")
    driver.setenv("AWS_REGION", "eu-west-1")
    table = OpenedTable(IDENTITY, storage_of(IDENTITY.location, options), system_ambient())
    scans, given = s3_settings(S3Settings.of(options).resolved()), identity_options(table)
    task = pickle.dumps(FileStore(table.storage, table.identity.location, table.ambient).storage)
    executor(driver)
    for storage in (opened(given).storage, pickle.loads(task), pickle.loads(pickle.dumps(pickle.loads(task)))):
        found = settings_of(storage)
        assert found.endpoint == scans[f"{S3A}endpoint"] == "http://minio.example:9000"
        assert found.region == scans[f"{S3A}endpoint.region"]
        assert str(found.path_style).lower() == scans[f"{S3A}path.style.access"]


def test_without_an_endpoint_only_the_region_is_passed_on(driver: pytest.MonkeyPatch) -> None:
    driver.setenv("AWS_REGION", "eu-west-1")
    table = OpenedTable(IDENTITY, storage_of(IDENTITY.location), system_ambient())
    assert table.storage.options() == {"region": "eu-west-1"}
    executor(driver)
    found = settings_of(opened(identity_options(table)).storage)
    assert (found.endpoint, found.region, found.path_style) == (None, "eu-west-1", False)


def test_an_endpoint_with_a_login_is_not_passed_on(driver: pytest.MonkeyPatch) -> None:
    driver.setenv("AWS_ENDPOINT_URL", "http://me:hidden@minio.example:9000")
    table = OpenedTable(IDENTITY, storage_of(IDENTITY.location), system_ambient())
    with pytest.raises(InvalidRequest, match="without user and password") as refused:
        identity_options(table)
    assert "hidden" not in str(refused.value)


def test_credentials_are_not_passed_on(driver: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        driver.setenv(name, "HIDDEN")
    table = OpenedTable(IDENTITY, storage_of(IDENTITY.location), system_ambient())
    assert "HIDDEN" not in f"{identity_options(table)} {table.storage!r}"
    assert b"HIDDEN" not in pickle.dumps(table.storage)

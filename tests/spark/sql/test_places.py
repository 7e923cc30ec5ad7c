"""What a session's settings say of a catalog, and which secrets it gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from filestore.errors import InvalidRequest
from tablestore.spark.sql import places as module
from tablestore.spark.sql.places import Place

SERVICE = {"uri": "http://127.0.0.1:8080"}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `connect` is called with."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        module, "connect", lambda uri, token, **more: calls.append({"uri": uri, "token": token, **more})
    )
    for name in ("TABLESTORE_TOKEN", "TABLESTORE_TOKEN_FILE", "TABLESTORE_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    return calls


def test_a_warehouse(given: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TABLESTORE_DATABASE", "sqlite:////another")
    monkeypatch.setenv("TABLESTORE_TOKEN", "s3cret")
    Place.of("lake", {"uri": "/warehouse", "storage.region": "a", "brokers": "b:9092"}).connect()
    (tmp_path / "database").write_text("postgresql://db\n")
    Place.of("lake", {"uri": "s3://lake", "database-file": str(tmp_path / "database")}).connect()
    assert [(call["token"], call["database"], call["storage_options"], call["brokers"]) for call in given] == [
        (None, None, {"region": "a"}, "b:9092"),
        (None, "postgresql://db", None, None),
    ]


def test_tokens_of_services(given: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("in the file\r\n")
    Place.of("lake", SERVICE).connect()
    Place.of("lake", SERVICE | {"token-file": str(tmp_path / "token")}).connect()
    monkeypatch.setenv("TABLESTORE_TOKEN_FILE", str(tmp_path / "token"))
    Place.of("lake", SERVICE).connect()
    monkeypatch.delenv("TABLESTORE_TOKEN_FILE")
    monkeypatch.setenv("TABLESTORE_TOKEN", "in the variable")
    Place.of("lake", SERVICE).connect()
    Place.of("lake", SERVICE, trusted=False).connect()
    assert [call["token"] for call in given] == [None, "in the file", "in the file", "in the variable", None]
    monkeypatch.setenv("TABLESTORE_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(InvalidRequest, match="both set"):
        Place.of("lake", SERVICE).connect()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Place.of("lake", SERVICE | {"token-file": str(tmp_path / "none")}).connect()


@pytest.mark.parametrize(
    ("settings", "trusted", "message"),
    [
        ({}, True, r"set spark.sql.catalog.lake.uri"),
        ({"uri": ""}, True, r"set spark.sql.catalog.lake.uri"),
        (SERVICE | {"token": "s3cret"}, True, r"set spark.sql.catalog.lake.token-file"),
        (SERVICE | {"database": "s3cret"}, True, r"set spark.sql.catalog.lake.database-file"),
        (SERVICE | {"url": "x"}, True, r"there is no setting spark.sql.catalog.lake.url"),
        (SERVICE | {"token-file": "/etc/passwd"}, False, "set it where the server is started"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, str], trusted: bool, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as raised:
        Place.of("lake", settings, trusted=trusted)
    assert raised.value.code in ("catalog-setting", "no-catalog-uri")
    assert "s3cret" not in str(raised.value)

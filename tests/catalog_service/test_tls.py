"""The service over TLS, with a private authority; what clients say of certificates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from catalog_service.client import CreateTable, connect
from catalog_service.server import serving
from catalog_service.server.listening import Settings, check_settings
from filestore.errors import InvalidRequest, TableStoreError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a certificate that it signed for 127.0.0.1, and one for another name."""
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name in ("127.0.0.1", "elsewhere.example"):
        made = ca.issue_cert(name)
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        made.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.both"))
        for blob in made.cert_chain_pems:
            blob.write_to_path(str(folder / f"{name}.pem"), append=True)
    return folder


@pytest.fixture
def secure(warehouse: str, authority: Path) -> Iterator[str]:
    files = {"tls_cert": f"{authority}/127.0.0.1.pem", "tls_key": f"{authority}/127.0.0.1.key"}
    with serving(warehouse, token="t", **files) as url:
        assert url.startswith("https://127.0.0.1:")
        yield url


def test_a_private_authority(secure: str, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_CA_FILE", str(authority / "ca.pem"))
    with connect(secure, token="t") as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop", CreateTable.of("orders", "id BIGINT"))
        assert catalog.list_tables("shop") == ["orders"]


def refused(url: str) -> TableStoreError:
    with connect(url, token="t") as catalog:
        with pytest.raises(TableStoreError) as reading:
            catalog.list_databases()
        with pytest.raises(TableStoreError) as changing:
            catalog.create_database("shop")
    assert (reading.value.code, type(reading.value)) == (changing.value.code, type(changing.value))
    return reading.value


def test_an_unknown_authority(secure: str) -> None:
    error = refused(secure)
    assert error.code == "tls-certificate"
    assert "TABLESTORE_CA_FILE" in error.message


def test_another_name(warehouse: str, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_CA_FILE", str(authority / "ca.pem"))
    with serving(warehouse, tls_cert=f"{authority}/elsewhere.example.both") as url:
        error = refused(url)
    assert (error.code, "another name" in error.message) == ("tls-certificate", True)


def test_https_to_a_service_without_it(url: str) -> None:
    error = refused(url.replace("http:", "https:"))
    assert (error.code, "write http://" in error.message) == ("tls-certificate", True)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_is_none(tmp_path, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    monkeypatch.setenv("TABLESTORE_CA_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(InvalidRequest, match="PEM") as caught:
        connect("https://127.0.0.1:1")
    assert caught.value.code == "ca-file"
    connect("http://127.0.0.1:1").close()


def test_files_that_do_not_serve(authority: Path) -> None:
    for cert, key in (
        ("nowhere.pem", None),
        ("127.0.0.1.pem", None),
        ("127.0.0.1.pem", "elsewhere.example.key"),
        ("127.0.0.1.key", "127.0.0.1.pem"),
        (None, "127.0.0.1.key"),
    ):
        tls_cert, tls_key = (None if name is None else str(authority / name) for name in (cert, key))
        with pytest.raises(InvalidRequest) as caught:
            check_settings(Settings(tls_cert=tls_cert, tls_key=tls_key))
        assert caught.value.code == "tls-files"
    check_settings(Settings(tls_cert=f"{authority}/127.0.0.1.both"))


@pytest.mark.slow
def test_a_client_that_lists_loads_neither_arrow_nor_sql(url: str) -> None:
    program = """
import sys
from catalog_service.client import connect
with connect(sys.argv[1]) as catalog:
    assert catalog.list_databases() == []
heavy = {"pyarrow", "polars", "sqlalchemy", "sqlglot", "fastapi", "deltalake"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program, url], check=True, timeout=120)

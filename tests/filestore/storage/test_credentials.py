"""Credentials that something else replaces while a process runs: they are found again, by each client of S3."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from filestore.ambient import Ambient, system_ambient
from filestore.errors import Unavailable
from filestore.storage.client import PART_BYTES
from filestore.storage.credentials import LOOKED_FOR_AFTER_S, FoundCredentials
from filestore.storage.s3_settings import S3Settings
from tests.filestore.storage.places import Place, content, put
from tests.servers.s3_proxy import Call, Fault, S3Proxy

pytestmark = pytest.mark.s3

REFUSALS = [Fault.REFUSED, Fault.EXPIRED]


class Keys:
    """The file with this process's credentials, and what the store accepts."""

    def __init__(self, file: Path, proxy: S3Proxy) -> None:
        self.file = file
        self._proxy = proxy
        self.write("FIRST")
        self.accept("FIRST")

    def write(self, name: str) -> None:
        self.file.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = secret-{name}\n")

    def accept(self, name: str, refusal: Fault = Fault.REFUSED) -> None:
        def refused(call: Call) -> Fault | None:
            return None if call.access_key == name else refusal

        self._proxy.choose = refused
        self._proxy.reset()


@pytest.fixture
def keys(place: Place, proxy: S3Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return Keys(tmp_path / "credentials", proxy)


@pytest.mark.few(2)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_request_is_repeated_with_the_credentials_that_are_in_the_file_now(
    place: Place, keys: Keys, proxy: S3Proxy, refusal: Fault
) -> None:
    place.storage.write_new(place.path("a"), b"a")
    keys.write("SECOND")
    keys.accept("SECOND", refusal)
    assert place.storage.read(place.path("a")) == b"a"
    assert [call.access_key for call in proxy.calls] == ["FIRST", "SECOND"]
    place.storage.write_new(place.path("b"), b"b")
    assert len(proxy.faults) == 1
    assert "SECOND" in place.storage.delta_options(place.folder).values()


@pytest.mark.few(1)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_an_upload_in_parts_goes_on_with_the_credentials_that_are_in_the_file_now(
    place: Place, keys: Keys, proxy: S3Proxy, refusal: Fault
) -> None:
    put(place, "before", bytes(PART_BYTES + 1))
    data = bytes(range(256)) * (PART_BYTES // 64)
    with place.storage.open_write(place.path("large")) as file:
        file.write(data[: 2 * PART_BYTES])
        keys.write("SECOND")
        keys.accept("SECOND", refusal)
        file.write(data[2 * PART_BYTES :])
    place.storage.sync(place.path("large"))
    assert {fault for _, fault in proxy.faults} <= {refusal}
    assert content(place.anew(), place.path("large")) == data


def test_credentials_that_are_still_refused_are_an_error_at_once(place: Place, keys: Keys, proxy: S3Proxy) -> None:
    place.storage.write_new(place.path("a"), b"a")
    keys.accept("SECOND")
    with pytest.raises(Unavailable) as refused:
        place.storage.read(place.path("a"))
    assert refused.value.code == "no-permission"
    assert proxy.count() == 1
    keys.write("THIRD")
    with pytest.raises(Unavailable) as refused:
        place.storage.read(place.path("a"))
    assert refused.value.code == "no-permission"
    assert [call.access_key for call in proxy.calls] == ["FIRST", "FIRST", "THIRD"]


@pytest.mark.parametrize("text", ["", "[default]\naws_access_key_id = SECOND\n", "not a file of AWS's"])
def test_a_file_that_is_being_replaced_costs_no_credentials(
    place: Place, keys: Keys, proxy: S3Proxy, text: str
) -> None:
    place.storage.write_new(place.path("a"), b"a")
    keys.file.write_text(text)
    keys.accept("SECOND")
    with pytest.raises(Unavailable) as refused:
        place.storage.read(place.path("a"))
    assert refused.value.code == "no-permission"
    keys.accept("FIRST")
    assert place.storage.read(place.path("a")) == b"a"


def at(now_s: list[float]) -> Ambient:
    return replace(system_ambient(), monotonic_s=lambda: now_s[0])


@pytest.mark.parametrize("place", ["obstore"], indirect=True)
def test_a_file_is_read_again_after_a_few_minutes(place: Place, keys: Keys) -> None:
    now_s = [0.0]
    found = FoundCredentials(S3Settings().resolved(), at(now_s))
    keys.write("SECOND")
    now_s[0] = LOOKED_FOR_AFTER_S - 1
    assert (found.current().access_key, found.generation) == ("FIRST", 0)
    now_s[0] = LOOKED_FOR_AFTER_S
    assert (found.current().access_key, found.generation) == ("SECOND", 1)
    now_s[0] = 2 * LOOKED_FOR_AFTER_S
    assert (found.current().access_key, found.generation) == ("SECOND", 1)
    assert found.renew(0) and not found.renew(1)


def test_credentials_that_botocore_renews_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role's differ each time: a right that is missing must not look like credentials that were replaced."""

    def grant(name: str) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", (datetime.now(UTC) + timedelta(hours=5)).isoformat())

    grant("FIRST")
    now_s = [0.0]
    found = FoundCredentials(S3Settings(region="a").resolved(), at(now_s))
    grant("SECOND")
    now_s[0] = 30.0
    assert not found.renew(0)
    now_s[0] = 10.0 * LOOKED_FOR_AFTER_S
    assert found.current().access_key == "FIRST"
    assert found.renew(0)
    grant("THIRD")
    assert not found.renew(1)
    assert found.current().access_key == "SECOND"


def test_obstore_asks_again_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """object_store keeps what it was given until it expires."""
    from filestore.storage.obstore_client import _signing

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FIRST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    given = _signing(FoundCredentials(S3Settings(region="a").resolved()))
    assert given["access_key_id"] == "FIRST"
    assert given["expires_at"] <= datetime.now(UTC) + timedelta(seconds=LOOKED_FOR_AFTER_S)

"""The doctor finds the same damage in S3 as on the local disk, and says the same about it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from filestore.doctor import Finding, examine
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import sampled
from tests.filestore.storage.places import s3_place
from tests.filestore.surgery import DAMAGES, Damage
from tests.filestore.test_doctor import filled
from tests.folders import memory_folder
from tests.servers.s3 import S3Endpoint
from tests.tables import seeded

pytestmark = pytest.mark.s3


@dataclass(frozen=True)
class Copies:
    """Whole tables to damage, by their changelog's producer, and a place in S3."""

    whole: dict[str, FileStore]
    server: S3Endpoint
    storage: Storage
    bucket: str

    def put(self, folder: Path, name: str) -> str:
        with self.server.client() as s3:
            for path in folder.rglob("*"):
                if path.is_file():
                    key = f"{name}/{path.relative_to(folder)}"
                    s3.put_object(Bucket=self.bucket, Key=key, Body=path.read_bytes())
        return f"s3://{self.bucket}/{name}"


@pytest.fixture(scope="module")
def copies(moto: S3Endpoint) -> Iterator[Copies]:
    with memory_folder() as folder, pytest.MonkeyPatch.context() as patch:
        whole = {changelog: filled(folder / changelog, changelog) for changelog in ("none", "lookup")}
        place = s3_place(moto, "obstore", patch)
        yield Copies(whole, moto, place.storage, place.folder.split("/")[2])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sampled(DAMAGES, fast=60, test=9))
def test_damage_is_found_in_s3(name: str, copies: Copies, folder: Path) -> None:
    code, damage = DAMAGES[name]
    template = copies.whole["lookup" if code.startswith("change-") else "none"]
    local = folder / "t"
    shutil.copytree(template.location, local)
    hurt(local, damage)
    location = copies.put(local, name.replace(" ", "-"))
    at_home = findings(LocalStorage(), str(local))
    assert code in {finding.code for finding in at_home}
    assert in_words(findings(copies.storage, location), location) == in_words(at_home, str(local))


def hurt(folder: Path, damage: Damage) -> None:
    damage(FileStore.open(LocalStorage(), str(folder), seeded(4)))


def findings(storage: Storage, location: str) -> tuple[Finding, ...]:
    return examine(FileStore(storage, location, seeded(5))).findings


def in_words(found: tuple[Finding, ...], location: str) -> list[tuple[str, str, str | None]]:
    """What was found, without the place, and without sizes and ages of files."""
    plain = ((f.code, f.message.replace(location, "").partition(" (")[0], f.path) for f in found)
    return sorted(plain, key=repr)

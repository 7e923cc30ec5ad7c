"""The flushes of a write's files on a local disk: each file, then each folder once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from filestore.errors import NotFound
from filestore.storage.local import LocalStorage


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    fsync = os.fsync

    def recording(handle: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recording)
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_files_are_flushed_before_their_folders_and_each_once(tmp_path: Path, flushed: list[str], count: int) -> None:
    paths = [tmp_path / f"p-{number % 3}" / f"{number}.parquet" for number in range(count)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")
    LocalStorage().sync_all([str(path) for path in paths])
    assert sorted(flushed[:count]) == sorted(str(path) for path in paths)
    assert sorted(flushed[count:]) == sorted({str(path.parent) for path in paths})


def test_a_file_that_is_missing_among_others_is_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(20)]
    for path in paths[:13] + paths[14:]:
        path.write_bytes(b"rows")
    with pytest.raises(NotFound, match=r"13\.parquet"):
        LocalStorage().sync_all([str(path) for path in paths])

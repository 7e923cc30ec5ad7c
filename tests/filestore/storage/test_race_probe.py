"""The probe of a store ends, whatever the machine can do; what it says about stores is in the conformance suite."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from filestore.ambient import system_ambient
from filestore.errors import Unavailable
from filestore.storage import race_probe
from filestore.storage.local import LocalStorage
from filestore.storage.race_probe import require_exclusive

NEW_ID = system_ambient().new_id


def test_threads_that_never_come_together_end_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for ever."""
    monkeypatch.setattr(race_probe, "_START_S", 0.2)
    monkeypatch.setattr(race_probe, "ThreadPoolExecutor", lambda _, name: ThreadPoolExecutor(3, name))
    with pytest.raises(Unavailable, match="threads did not start") as caught:
        require_exclusive(LocalStorage(), str(folder), NEW_ID)
    assert caught.value.code == "race-probe"
    assert list(folder.iterdir()) == []


def test_a_thread_that_cannot_start_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that had started waited for it for ever."""
    start, started = threading.Thread.start, []

    def start_few(thread: threading.Thread) -> None:
        if thread.name.startswith("race-probe"):
            started.append(thread)
            if len(started) > 5:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    with pytest.raises(Unavailable) as caught:
        require_exclusive(LocalStorage(), str(folder), NEW_ID)
    assert caught.value.code == "race-probe"
    assert not any(thread.is_alive() for thread in started[:5])
    assert list(folder.iterdir()) == []

"""A log whose calls are written down, and may be made to fail."""

from __future__ import annotations

from typing import Any

import pytest

import log.table.session
from filestore.errors import TableStoreError
from log.table.systems import open_log

__all__ = ["LogSpy"]


class LogSpy:
    """A log whose calls are written down, and may be made to fail."""

    def __init__(self, events: list[str], failing: dict[str, TableStoreError]) -> None:
        self.events = events
        self.failing = failing
        self.opened = 0

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch) -> LogSpy:
        """In the place of every log that writers open."""
        spy = cls([], {})
        monkeypatch.setattr(log.table.session, "open_log", spy)
        return spy

    def __call__(self, config: Any, ambient: Any) -> Any:
        self.opened += 1
        return _Spied(open_log(config, ambient), self)


class _Spied:
    def __init__(self, inner: Any, spy: LogSpy) -> None:
        self._inner = inner
        self._spy = spy

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            detail = "" if "commit" not in kwargs else " commit" if kwargs["commit"] else " abort"
            self._spy.events.append(name + detail)
            if name + detail in self._spy.failing:
                raise self._spy.failing[name + detail]
            result = getattr(self._inner, name)(*args, **kwargs)
            return _Spied(result, self._spy) if name == "begin" else result

        return call

"""A reader's position on the brokers: written when it moves, and again before the brokers forget it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from filestore.ambient import system_ambient
from tablestore.topics.place import ReaderPlace

HOUR_MS = 3_600_000


def test_a_place_is_written_at_once_when_it_moves_and_every_hour() -> None:
    written: list[tuple[int, dict[int, int]]] = []
    now = [0]

    def write(offsets: Mapping[int, int]) -> None:
        written.append((now[0], dict(offsets)))

    place = ReaderPlace(write, {0: 5}, replace(system_ambient(), now_ms=lambda: now[0]))
    for at_ms, offset in [(0, 5), (1, 5), (2, 6), (HOUR_MS, 6), (HOUR_MS + 2, 6), (HOUR_MS + 3, 6)]:
        now[0] = at_ms
        place.reached({0: offset})
    assert written == [(0, {0: 5}), (2, {0: 6}), (HOUR_MS + 2, {0: 6})]

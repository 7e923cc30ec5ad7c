"""The soak in short: writer, broker and reader die once at least, and everything is compared at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.integration.soak import soak

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

RATE = 1000


def test_writer_broker_and_reader_die_and_nothing_is_lost_or_doubled(folder: Path) -> None:
    reported = soak(folder, 30, RATE, 4, Console())
    assert min(reported.deaths[name] for name in ("writer", "broker", "reader")) >= 1
    assert reported.commits > sum(reported.deaths.values()), "work was done between the deaths"
    assert reported.records >= reported.commits * RATE * 0.8  # a delete of what is not there is no change
    assert reported.kept > 0

"""Tests of managed tables that run on the embedded log, and on Kafka as well."""

from __future__ import annotations

import pytest

__all__ = ["both_logs"]

both_logs = pytest.mark.parametrize(
    "log_options",
    ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])],
    indirect=True,
)
"""For tests whose tables are made with the fixture ``log_options``."""

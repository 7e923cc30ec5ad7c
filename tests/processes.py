"""Processes of tests, forked from one that has imported all that they need: a process costs milliseconds."""

from __future__ import annotations

import multiprocessing

__all__ = ["PROCESSES"]

PROCESSES = multiprocessing.get_context("forkserver")
# one server forks for all tests of a run, and only the last list that it is given counts: so there is one
PROCESSES.set_forkserver_preload(
    ["pytest", "catalog_service.server", "tests.catalog_service.faults", "tests.integration.crashing"]
)

"""What `tests.bench.growth` measures runs: else nobody would see that a case fails until somebody measures."""

from __future__ import annotations

import pytest

from tests.bench.growth import CASES, Case, measured


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dimension}, {case.operation}")
def test_each_case_runs(case: Case) -> None:
    assert measured(case, 3) >= 0

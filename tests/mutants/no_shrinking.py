"""A plugin of pytest for ``make mutants``: it does not search for the smallest failing example, which takes minutes."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_sessionstart() -> None:
    """Changes the profile that `tests/conftest.py` has loaded, before tests are collected."""
    present = settings.get_profile(settings.get_current_profile_name())
    settings.register_profile("mutants", present, phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutants")

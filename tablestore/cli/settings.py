"""Parses settings that users write as names with values."""

from __future__ import annotations

from collections.abc import Sequence

import typer

__all__ = ["defaults_of", "options_of", "storage_options"]


def options_of(given: Sequence[str], hint: str = "--option") -> dict[str, str]:
    """Parses options of the form ``NAME=VALUE``."""
    pairs = [text.partition("=") for text in given]
    if wrong := [text for text, equals, _ in pairs if not equals]:
        raise typer.BadParameter(f"{wrong[0]!r}: write NAME=VALUE", param_hint=hint)
    return {name.strip(): value.strip() for name, _, value in pairs}


def defaults_of(given: str | None) -> dict[str, str]:
    """Parses a session's ``table-storage.*`` settings, which semicolons or newlines separate."""
    return _pairs(given, "--defaults, $TABLESTORE_DEFAULTS")


def _pairs(given: str | None, hint: str) -> dict[str, str]:
    parts = (given or "").replace("\n", ";").split(";")
    return options_of([part for part in parts if part.strip()], hint)


def storage_options(given: str | None) -> dict[str, str]:
    """Parses storage options, which semicolons or newlines separate."""
    return _pairs(given, "--storage, $TABLESTORE_STORAGE")

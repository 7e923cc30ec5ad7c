"""Parses settings that users write as names with values."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer

from filestore.errors import InvalidRequest
from filestore.model.names import names_in

__all__ = ["defaults_of", "names_of", "options_of", "storage_options"]

_PAIR = re.compile(r"((?:`(?:[^`]|``)+`|[^=`])*)=(.*)", re.DOTALL)
"""An option that is a column's has the column's name in its own, in backticks if it has ``=``."""


def options_of(given: Sequence[str], hint: str = "--option") -> dict[str, str]:
    """Parses options of the form ``NAME=VALUE``."""
    pairs = [(_PAIR.fullmatch(text), text) for text in given]
    if wrong := [text for pair, text in pairs if pair is None]:
        raise typer.BadParameter(f"{wrong[0]!r}: write NAME=VALUE", param_hint=hint)
    return {pair[1].strip(): pair[2].strip() for pair, _ in pairs if pair is not None}


def names_of(text: str | None) -> list[str]:
    """Reads a list of columns; without a text there are none.

    Raises:
        InvalidRequest: ``bad-column-list``.
    """
    try:
        return list(names_in(text)) if text and text.strip() else []
    except ValueError as error:
        raise InvalidRequest(f"{text!r} should be {error}", code="bad-column-list") from error


def defaults_of(given: str | None) -> dict[str, str]:
    """Parses a session's ``table-storage.*`` settings, which semicolons or newlines separate."""
    return _pairs(given, "--defaults, $TABLESTORE_DEFAULTS")


def _pairs(given: str | None, hint: str) -> dict[str, str]:
    parts = (given or "").replace("\n", ";").split(";")
    return options_of([part for part in parts if part.strip()], hint)


def storage_options(given: str | None) -> dict[str, str]:
    """Parses storage options, which semicolons or newlines separate."""
    return _pairs(given, "--storage, $TABLESTORE_STORAGE")

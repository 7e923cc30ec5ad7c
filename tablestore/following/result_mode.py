"""Parses the option ``mode``, by which a reader of changes gets an update as one row or as two."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from filestore.errors import InvalidRequest

__all__ = ["Mode", "ResultMode", "result_mode"]


class ResultMode(StrEnum):
    """The forms in which a reader gets an update: as one row or as two."""

    UPSERT = "upsert"
    """Each row as it is now (``+I`` or ``+U``), as in the log; a delete has the key (``-D``), also one that was
    written as ``-U``."""
    CHANGELOG = "changelog"
    """The row before (``-U``) and after (``+U``) each update; a delete has the row before it. Changes without an effect
    are left out."""


Mode: TypeAlias = Literal["upsert", "changelog"]
"""The modes as users write them."""


def result_mode(text: str) -> ResultMode:
    """Parses the name of a mode; raises `InvalidRequest` (``bad-result-mode``)."""
    try:
        return ResultMode(text)
    except ValueError as error:
        names = " or ".join(repr(str(mode)) for mode in ResultMode)
        raise InvalidRequest(f"mode={text!r} is not known: use {names}", code="bad-result-mode") from error

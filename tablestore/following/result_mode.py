"""What a reader of changes gets of an update: ``mode``."""

from __future__ import annotations

from enum import StrEnum

from filestore.errors import InvalidRequest

__all__ = ["ResultMode", "result_mode"]


class ResultMode(StrEnum):
    """What a reader of changes gets of an update."""

    UPSERT = "upsert"
    """The row as it is now (``+I`` or ``+U``), as the log has it; a delete names the key (``-D``), also one that was
    written as ``-U``."""
    CHANGELOG = "changelog"
    """The row as it was (``-U``) and as it is (``+U``); a delete has the row as it was. What changes nothing is left
    out."""


def result_mode(text: str) -> ResultMode:
    """The mode of that name. `InvalidRequest` (``bad-result-mode``)."""
    try:
        return ResultMode(text)
    except ValueError as error:
        names = " or ".join(repr(str(mode)) for mode in ResultMode)
        raise InvalidRequest(f"mode={text!r} is not known: use {names}", code="bad-result-mode") from error

"""Checks texts: every store takes what UTF-8 can encode, without NUL; and lists names in messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from filestore.errors import InvalidRequest

__all__ = ["check_text", "check_texts", "did_you_mean", "meant", "name_list", "none_named"]

_WRONG = re.compile("[\0\ud800-\udfff]")
_NAMES = 30  # so many names a message lists
_SHOWN = 60  # characters of a bad text in the message


def name_list(names: Sequence[str]) -> str:
    """Formats names for a message, which stays readable with thousands of them."""
    shown = ", ".join(names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown} and {len(names) - _NAMES:,} more"


def meant(name: str, names: Iterable[str]) -> str | None:
    """Returns which of the names is meant by one that is none of them: one that is much like it, or None."""
    spelled = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), spelled, 1, cutoff=0.7)
    return spelled[near[0]] if near else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns what follows a name that is none of some others: which one is meant, or nothing."""
    near = meant(name, names)
    return "" if near is None else f" (did you mean {near!r}?)"


def none_named(what: str, name: str, names: Sequence[str]) -> str:
    """Says that nothing has a name, which names there are, and which one is meant if one is much like it."""
    return f"there is no {what} {name!r}{did_you_mean(name, names)}; the {what}s are {name_list(names)}"


def check_text(what: str, text: str) -> None:
    """Refuses text that JSON can hold but files, SQL databases or other readers cannot.

    Args:
        what: The text's role, for the message.
        text: The text as the user wrote it.

    Raises:
        InvalidRequest: ``bad-text``: it contains half a surrogate pair, which UTF-8 cannot encode, or NUL.
    """
    wrong = _WRONG.search(text)
    if wrong is not None:
        raise InvalidRequest(
            f"{what} contains the character U+{ord(wrong[0]):04X}, which cannot be stored: remove it", code="bad-text"
        )


def check_texts(data: Any) -> None:
    """Checks every text in a JSON value, names of members too.

    IMPORTANT: no recursion, since a request chooses its own depth.

    Raises:
        InvalidRequest: ``bad-text``.
    """
    waiting = [data]
    while waiting:
        match waiting.pop():
            case str() as text:
                check_text(f"{text[:_SHOWN]!r} in the request", text)
            case Mapping() as members:
                waiting += [*members.keys(), *members.values()]
            case list() | tuple() as items:
                waiting += items

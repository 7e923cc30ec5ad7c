"""The rule of names: what a column, and a field of a STRUCT, may be called (FORMAT.md section 3). Pure.

A name is any text that the readers of Delta tables take, with blanks, commas, quotes and letters of every language.
`check_stored_name` has what a schema needs to be read at all; `check_new_name` also refuses what no engine could use.
Formats of messages have rules of their own, such as Avro's (`log.connector.formats`).

A text that lists names separates them by commas, and a name that would not survive that stands in backticks, as in
SQL: ``id,`US Gross, 2025` ``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from filestore.errors import InvalidRequest
from filestore.model.own_columns import is_own
from filestore.model.text import check_text

__all__ = ["check_new_name", "check_partition_name", "check_stored_name", "listed", "names_in", "quoted", "unquoted"]

_BAD = "bad-column-name"
_QUOTED = re.compile(r"\s*`((?:[^`]|``)+)`\s*", re.DOTALL)
_LISTED_AS_IT_IS = re.compile(r"[^\s,;`](?:[^,;`]*[^\s,;`])?", re.DOTALL)


@lru_cache(maxsize=1 << 14)
def check_stored_name(name: str) -> None:
    """Checks the name of a column that a table has. Results are cached: each change makes a schema of all columns anew.

    Raises:
        InvalidRequest: ``bad-column-name``: it is blank, or one of the store's own.
    """
    if not name.strip():
        raise InvalidRequest(f"column name {name!r} is empty: name the column", code=_BAD)
    if is_own(name):
        raise InvalidRequest(f"column name {name!r} is reserved for the store's own columns: rename it", code=_BAD)


def check_new_name(what: str, name: str) -> None:
    """Checks a name that a new table, column or field is given. Stored ones are not checked, so they stay readable.

    Args:
        what: Whose name it is, for the message, such as ``column name 'a'``.
        name: The name.

    Raises:
        InvalidRequest: ``bad-text``: it cannot be stored; ``bad-column-name``: it is blank, or polars reads it as a
            selection of columns (decision 76).
    """
    check_text(what, name)
    if not name.strip():
        raise InvalidRequest(f"{what} is empty: name it", code=_BAD)
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise InvalidRequest(
            f"{what} is a pattern: polars reads * as all columns and ^…$ as a regular expression over their names. "
            "Use another name",
            code=_BAD,
        )


def check_partition_name(name: str) -> None:
    """Checks the name of a new table's partition column, with which the folders of its files begin.

    Raises:
        InvalidRequest: ``bad-column-name``.
    """
    if name.startswith("_"):
        raise InvalidRequest(
            f"partition column {name!r} begins with '_', and readers skip folders that do: rename it, or "
            "partition by another",
            code=_BAD,
        )


def quoted(name: str) -> str:
    """Writes a name in backticks, as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(text: str) -> str:
    """Returns the name that a text writes: without its backticks if it has them, else without blanks at its ends."""
    match = _QUOTED.fullmatch(text)
    return match[1].replace("``", "`") if match else text.strip()


def names_in(text: str, separators: str = ",") -> tuple[str, ...]:
    """Reads a list of names, in which a name may stand in backticks.

    Raises:
        ValueError: one of them is empty, or a backtick is not closed.
    """
    names = tuple(unquoted(part) for part in _parts(text, separators))
    if not all(name.strip() for name in names):
        raise ValueError("column names separated by commas, one with a comma in backticks")
    return names


def listed(names: Iterable[str], separator: str = ",") -> str:
    """Reverses `names_in`: only names that need them get backticks, so that older versions read all other lists."""
    return separator.join(name if _LISTED_AS_IT_IS.fullmatch(name) else quoted(name) for name in names)


def _parts(text: str, separators: str) -> Iterator[str]:
    """Splits a text at separators outside of backticks. A backtick inside of a name, as in a`b, quotes nothing."""
    start = 0
    while True:
        match = _QUOTED.match(text, start)
        end = match.end() if match and (match.end() == len(text) or text[match.end()] in separators) else start
        while end < len(text) and text[end] not in separators:
            end += 1
        yield text[start:end]
        if end == len(text):
            return
        start = end + 1

"""``python -m filestore.model.options_page``: OPTIONS.md, drawn from the code. A test keeps the file equal to it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from filestore.model.evolution import FIXED_OPTIONS
from filestore.model.field_options import FIELD_OPTIONS
from filestore.model.functions import FUNCTIONS
from filestore.model.option_values import OneOf, Option
from filestore.model.options import OPTIONS, PREFIXES

__all__ = ["page"]

_HEAD = """# Table options

Given when a table is created, as texts: `options={"bucket": "4"}`.
A name that does not exist is refused with the nearest one that does.
All but those that end with "Fixed." may be changed later: `table.alter("SET checkpoint.interval = 20")`.
"""
_FIELDS = """## Options of a column: `fields.<column>.<option>`
For `merge-engine = aggregation` and `partial-update`; what they do in full: FORMAT.md section 9.3.
The column of a sequence group may be several, separated by commas: `fields.seq1,seq2.sequence-group = a,b`.
They are fixed once the table has their column.
"""
_FUNCTIONS = """## Aggregate functions
| function | takes | takes values back |
|---|---|---|
"""


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _table(OPTIONS.values())
    yield from (f"| `{prefix}…` | text | | {doc} |" for prefix, doc in PREFIXES.items())
    yield ""
    yield _FIELDS
    yield from _table(FIELD_OPTIONS.values())
    yield ""
    yield _FUNCTIONS.rstrip("\n")
    for name, function in FUNCTIONS.items():
        yield f"| `{name}` | {function.takes} | {'yes' if function.retracts else 'no'} |"


def _table(options: Iterable[Option]) -> Iterator[str]:
    yield "| option | type | default | what it does |"
    yield "|---|---|---|---|"
    for option in options:
        default = "" if option.default is None else f"`{option.default}`"
        fixed = " Fixed." if option.name in FIXED_OPTIONS else ""
        yield f"| `{option.name}` | {_kind(option)} | {default} | {option.doc}{fixed} |"


def _kind(option: Option) -> str:
    if not isinstance(option.parse, OneOf):
        return option.kind
    if set(option.parse.choices) == set(FUNCTIONS):
        return "an aggregate function"
    return " or ".join(f"`{choice}`" for choice in option.parse.choices)


if __name__ == "__main__":
    sys.stdout.write(page())

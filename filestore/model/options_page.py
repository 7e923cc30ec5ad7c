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
A function sees a key's values in the order of `sequence.field` or of the column's sequence group, else as they come.
What is stored is one row, of the highest sequence that it has seen: a row that comes in a later commit with a lower one
counts before all of it, not between the rows that it was made of. So functions that *need order* give another result
for rows that come out of order in several commits than in one (as in Paimon): let such rows come in order, or take a
function that does not need it. `partial-update` without sequence groups is `last_non_null_value`, which does. And a
delete that removes a row (`….remove-record-on-delete`) is not remembered: a late row brings its key back. When pending
runs are folded (`write-mode = merge-on-read`) makes no difference to any of this: they are merged commit by commit.

| function | takes | takes values back | needs order | |
|---|---|---|---|---|
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
        back, ordered = ("yes" if holds else "no" for holds in (function.retracts, function.ordered))
        yield f"| `{name}` | {function.takes} | {back} | {ordered} | {function.note} |"


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

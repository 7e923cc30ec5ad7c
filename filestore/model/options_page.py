"""Generates OPTIONS.md: ``python -m filestore.model.options_page``. A test compares the file with the code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from filestore.model.field_options import FIELD_OPTIONS
from filestore.model.functions import FUNCTIONS
from filestore.model.option_values import OneOf, Option
from filestore.model.options import OPTIONS, PREFIXES

__all__ = ["page"]

_HEAD = """# Table options

They are set when a table is created, as texts: `options={"bucket": "4"}`.
For an unknown name the error suggests the nearest known one.
A column list has commas between names; one with a comma, or blanks at its ends, stands in backticks: `` id,`a, b` ``.
All options except those marked "Fixed." may be changed later: `table.alter("SET checkpoint.interval = 20")`.
"""
_FIELDS = """## Options of a column: `fields.<column>.<option>`
They are for `merge-engine = aggregation` and `partial-update`; FORMAT.md section 9.3 defines them.
A sequence group may be ordered by several columns, separated by commas: `fields.seq1,seq2.sequence-group = a,b`.
A column whose name has a comma stands in backticks there, and any column may.
They are fixed once the table has their column.
"""
_FUNCTIONS = """## Aggregate functions
A function gets a key's values in the order of `sequence.field` or of the column's sequence group, or else as they
arrive. The table stores one merged row, with the highest sequence so far: a row with a lower one that arrives in a
later commit is merged as if it preceded that row, not between the rows from which it was merged. So functions that
*need order* give another result for rows that arrive out of order in several commits than in one (as in Paimon): let
such rows arrive in order, or use a function that does not need it. `partial-update` without sequence groups is
`last_non_null_value`, which needs it. A delete that removes a row (`….remove-record-on-delete`) is not remembered: a
late row inserts its key again. With `write-mode = merge-on-read` the time of a fold does not change the result: pending
runs are merged commit by commit.

| function | takes | can retract | needs order | |
|---|---|---|---|---|
"""


def page() -> str:
    """Returns the page's text."""
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
        fixed = " Fixed." if option.fixed else ""
        yield f"| `{option.name}` | {_kind(option)} | {default} | {option.doc}{fixed} |"


def _kind(option: Option) -> str:
    if not isinstance(option.parse, OneOf):
        return option.kind
    if set(option.parse.choices) == set(FUNCTIONS):
        return "an aggregate function"
    return " or ".join(f"`{choice}`" for choice in option.parse.choices)


if __name__ == "__main__":
    sys.stdout.write(page())

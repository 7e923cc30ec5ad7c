"""Prints the results of statements, and says on standard error which engine returned them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tablestore.cli.arguments import Format
from tablestore.cli.layout import Expanded, aligned, expanded, width_of
from tablestore.cli.output import note
from tablestore.cli.pager import Screen, paged, screen

if TYPE_CHECKING:
    import pyarrow as pa

    from tablestore.shell.results import Result

__all__ = ["Display"]

_ROWS_ALIGNED = 1000
"""The number of rows that are in memory and aligned with each other."""


@dataclass(slots=True)
class Display:
    """Prints results in a way that commands of a prompt change.

    Attributes:
        output: A table for people, or JSON.
        rows: Print at most so many; None: all.
        expanded: Whether each value has a line of its own.
    """

    output: Format
    rows: int | None
    expanded: Expanded = Expanded.AUTO

    @property
    def wanted(self) -> int | None:
        """One row more than is printed, so that it is known whether there are more."""
        return None if self.rows is None else self.rows + 1

    def show(self, result: Result) -> None:
        """Prints a result; in a pager if it does not fit on the screen."""
        if result.schema is None:
            note(f"{result.engine}: done")
            return
        printing = _Printing(self, screen() if self.output is Format.TABLE else None)
        left = printing.print(result)
        count = printing.printed
        counted = f"{result.engine}: {count:,} row" if count == 1 else f"{result.engine}: {count:,} rows"
        if left:
            note(f"{counted} until the pager was left")
        else:
            note(f"{counted}; there are more, which --rows prints" if printing.more else counted)


class _Printing:
    """Prints one result.

    Args:
        display: How.
        on: The screen, if a person reads.
    """

    def __init__(self, display: Display, on: Screen | None) -> None:
        self._display = display
        self._screen = on
        self._expanded: bool | None = None
        self.printed = 0
        self.more = False

    def print(self, result: Result) -> bool:
        """Returns whether the reader did not want all of it."""
        blocks = self._blocks(result)
        pager = None
        if self._screen is not None:
            begun = list(itertools.islice(blocks, 2))  # whether the whole fits on the screen
            if len(begun) > 1 or not self._screen.fits(len(begun[0]), width_of(begun[0])):
                pager = self._screen.pager
            blocks = itertools.chain(begun, blocks)
        with paged(pager) as write:
            return not all(write(block) for block in blocks)

    def _blocks(self, result: Result) -> Iterator[list[str]]:
        rows = self._display.rows
        for part in _parts(result, rows):
            self.more = rows is not None and self.printed + part.num_rows > rows
            shown = part.slice(0, rows - self.printed) if rows is not None else part
            first, self.printed = self.printed, self.printed + shown.num_rows
            if shown.num_rows or not first:
                yield self._lines(shown, first + 1)

    def _lines(self, rows: pa.Table, first: int) -> list[str]:
        from tablestore.cli.text import cells, json_lines, numbers, titles  # loads Arrow and polars

        named = rows.rename_columns(_distinct(rows.column_names))
        if self._display.output is Format.JSON:
            return json_lines(named)
        heads, texts, width = (
            titles(rows.column_names),
            cells(named),
            None if self._screen is None else self._screen.width,
        )
        right = {named.column_names.index(name) for name in numbers(named)}
        lines = aligned(heads, texts, right)
        if self._expanded is None:
            self._expanded = self._display.expanded.at(width_of(lines), width) and rows.num_rows > 0
        return expanded(heads, texts, first, width) if self._expanded else lines


def _parts(result: Result, rows: int | None) -> Iterator[pa.Table]:
    """Yields the rows in parts of `_ROWS_ALIGNED`, or an empty part without rows; it reads one row more than `rows`."""
    import pyarrow as pa

    from filestore.sorting.runs import gathered  # loads Arrow and polars

    assert result.schema is not None
    slices = (
        batch.slice(start, _ROWS_ALIGNED)
        for batch in result.batches
        for start in range(0, batch.num_rows, _ROWS_ALIGNED)
    )
    passed = 0
    for group in gathered(slices, rows=_ROWS_ALIGNED):
        part = pa.concat_tables(group)
        passed += part.num_rows
        yield part
        if rows is not None and passed > rows:
            return
    if not passed:
        yield result.schema.empty_table()


def _distinct(names: Sequence[str]) -> list[str]:
    """Makes of equal names different ones: Spark's results may have two columns with one name."""
    found: list[str] = []
    for name in names:
        number, free = 2, name
        while free in found:
            number, free = number + 1, f"{name}_{number}"
        found.append(free)
    return found

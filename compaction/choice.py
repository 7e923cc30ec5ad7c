"""Chooses the files of a slot that a compaction merges. Pure: it gets files and returns a choice.

A commit marks superseded rows as deleted, so each key has a live row in one file only. So the order of runs does not
matter, any of them may be merged, and runs of similar sizes are chosen (universal compaction, decision 27).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.rows.keys import Key, decode_key

__all__ = ["Choice", "Run", "chains", "choose", "least_files", "sorted_runs"]

Run = tuple[DataFile, ...]
"""Files of one level that do not overlap, in key order; at most one of them is below the target size."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Files of the slot that are merged into one run of that level, without their deleted rows."""

    files: tuple[DataFile, ...]
    level: int


def choose(files: Sequence[DataFile], definition: TableDefinition, *, full: bool = False) -> Choice | None:
    """Chooses the files of a slot to merge; returns None if it needs no compaction.

    Args:
        files: The slot's live files.
        definition: The table's keys and options.
        full: Whether to merge all files into one run, whatever that costs.
    """
    if definition.primary_key:
        chosen = _all_unless_clean(files, definition) if full else _some_runs(files, definition)
    else:
        chosen = _pieces(files, definition, full)
    return Choice(tuple(chosen), 1 + max(file.level for file in chosen)) if chosen else None


def least_files(definition: TableDefinition) -> int:
    """Returns the least number of files of a slot that `choose` merges though none of them has a deleted row."""
    return int(definition.options["num-sorted-run.compaction-trigger"])


def sorted_runs(files: Iterable[DataFile], definition: TableDefinition) -> list[Run]:
    """Groups the files of a table with a key into runs: the fewest that a first-fit search finds."""
    return [tuple(f.file for f in run) for run in _first_fit(files, definition, runs=True)]


def chains(files: Iterable[DataFile], definition: TableDefinition) -> list[tuple[DataFile, ...]]:
    """Groups the files of a table with a key into chains without overlaps, whatever their levels and sizes.

    There are as many chains as files that overlap at one key: a merge has one file of each chain open at a time.
    """
    return [tuple(f.file for f in chain) for chain in _first_fit(files, definition, runs=False)]


@dataclass(frozen=True, slots=True)
class _Spanning:
    """A file with its keys decoded."""

    file: DataFile
    low: Key
    high: Key
    small: bool


def _first_fit(files: Iterable[DataFile], definition: TableDefinition, *, runs: bool) -> list[list[_Spanning]]:
    rows: list[list[_Spanning]] = []
    for file in sorted((_spanning(f, definition) for f in files), key=lambda f: (f.low, f.file.path)):
        fitting = (row for row in rows if row[-1].high < file.low and (not runs or _of_one_write(row, file)))
        row = next(fitting, None)
        if row is None:
            rows.append([file])
        else:
            row.append(file)
    return rows


def _of_one_write(run: Sequence[_Spanning], file: _Spanning) -> bool:
    """Returns whether one writer could have written the file after the run's files."""
    return run[-1].file.level == file.file.level and not (file.small and any(f.small for f in run))


def _spanning(file: DataFile, definition: TableDefinition) -> _Spanning:
    types = [definition.schema.column(name).type for name in definition.sort_key]
    assert file.min_key is not None, f"{file.path} of a table with a key has no key tags"
    assert file.max_key is not None, f"{file.path} of a table with a key has no key tags"
    low, high = decode_key(file.min_key, types), decode_key(file.max_key, types)
    return _Spanning(file, low, high, _is_small(file, definition))


def _is_small(file: DataFile, definition: TableDefinition) -> bool:
    return bool(file.size < definition.options["target-file-size"])


def _replaceable(file: DataFile) -> bool:
    """Returns whether a full compaction writes a file anew, though it is alone: it has dead rows, or is outdated."""
    return file.live_rows < file.rows or file.outdated


def _all_unless_clean(files: Sequence[DataFile], definition: TableDefinition) -> Sequence[DataFile]:
    clean = len(sorted_runs(files, definition)) <= 1 and not any(map(_replaceable, files))
    return () if clean else files


def _some_runs(files: Sequence[DataFile], definition: TableDefinition) -> Sequence[DataFile]:
    trigger = definition.options["num-sorted-run.compaction-trigger"]
    if len(files) >= trigger and len(runs := sorted_runs(files, definition)) >= trigger:
        ratio = definition.options["compaction.size-ratio"]
        return list(itertools.chain.from_iterable(_smallest(runs, len(runs) - trigger + 2, ratio)))
    if _amplified(files, definition):
        return [file for file in files if _amplified([file], definition)]
    return ()


def _amplified(files: Sequence[DataFile], definition: TableDefinition) -> bool:
    """Returns whether deleted rows take more space, compared with live rows, than the table's options allow."""
    percent = definition.options["compaction.max-size-amplification-percent"]
    return bool(100 * sum(map(_dead_size, files)) > percent * sum(map(_live_size, files)))


def _smallest(runs: Sequence[Run], at_least: int, ratio_percent: int) -> Sequence[Run]:
    """Returns the smallest runs, and the next one while it is not larger than all before (universal compaction)."""
    ordered = sorted(runs, key=lambda run: (_size(run), run[0].path))
    taken = at_least
    while taken < len(ordered):
        before = sum(_size(run) for run in ordered[:taken])
        if _size(ordered[taken]) * 100 > before * (100 + ratio_percent):
            break
        taken += 1
    return ordered[:taken]


def _size(run: Run) -> int:
    return sum(map(_live_size, run))


def _live_size(file: DataFile) -> int:
    """Estimates the bytes of the live rows from their number."""
    return file.size * file.live_rows // file.rows


def _dead_size(file: DataFile) -> int:
    return file.size - _live_size(file)


def _pieces(files: Sequence[DataFile], definition: TableDefinition, full: bool) -> Sequence[DataFile]:
    """The small files of a table without a key, in the order in which they were written."""
    small = [file for file in files if _is_small(file, definition)]
    worn = [file for file in files if (_replaceable(file) if full else _amplified([file], definition))]
    enough = 2 if full else definition.options["num-sorted-run.compaction-trigger"]
    chosen = {file.path: file for file in [*(small if len(small) >= enough else ()), *worn]}
    return sorted(chosen.values(), key=lambda file: (file.modified_ms, file.path))

"""What a compaction does in one slot. Pure: files in, a choice out.

Since a commit marks superseded rows dead at once, each key lives in one file only. So the order of runs carries no
meaning, any of them may be merged, and those are chosen that are alike in size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from filestore.keys import Key, decode_key
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile

__all__ = ["Choice", "Merge", "Nothing", "Run", "choose", "sorted_runs"]

Run = tuple[DataFile, ...]
"""Files of one level that do not overlap, in key order, of which one at most is below the target size."""

# NOTE: Paimon's `compaction.size-ratio`; issue 4 makes it an option.
_SIZE_RATIO_PERCENT = 1
_DEAD_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Nothing:
    """The slot is well as it is."""


@dataclass(frozen=True, slots=True)
class Merge:
    """These files become new ones of that level."""

    files: tuple[DataFile, ...]
    level: int


Choice = Nothing | Merge


def choose(files: Sequence[DataFile], definition: TableDefinition, *, full: bool = False) -> Choice:
    """What to do with a slot.

    Args:
        files: Its live files.
        definition: Keys and options.
        full: Make one clean run of it, whatever that costs.
    """
    if definition.primary_key:
        chosen = _all_unless_clean(files, definition) if full else _some_runs(files, definition)
    else:
        chosen = _pieces(files, definition, full)
    if not chosen:
        return Nothing()
    return Merge(tuple(chosen), 1 + max(file.level for file in chosen))


def sorted_runs(files: Iterable[DataFile], definition: TableDefinition) -> list[Run]:
    """The files of a table with a key as runs: the fewest that first fit finds."""
    runs: list[list[DataFile]] = []
    for file in sorted(files, key=lambda f: (_bounds(f, definition)[0], f.path)):
        fitting = (run for run in runs if _continues(run, file, definition))
        run = next(fitting, None)
        if run is None:
            runs.append([file])
        else:
            run.append(file)
    return [tuple(run) for run in runs]


def _continues(run: Sequence[DataFile], file: DataFile, definition: TableDefinition) -> bool:
    """Whether one writer could have written the file behind the run."""
    if run[-1].level != file.level or _bounds(run[-1], definition)[1] >= _bounds(file, definition)[0]:
        return False
    return not (_is_small(file, definition) and any(_is_small(f, definition) for f in run))


def _bounds(file: DataFile, definition: TableDefinition) -> tuple[Key, Key]:
    types = [definition.schema.column(name).type for name in definition.sort_key]
    assert file.min_key is not None, f"{file.path} of a table with a key has no key tags"
    assert file.max_key is not None, f"{file.path} of a table with a key has no key tags"
    return decode_key(file.min_key, types), decode_key(file.max_key, types)


def _is_small(file: DataFile, definition: TableDefinition) -> bool:
    return bool(file.size < definition.options["target-file-size"])


def _dead(files: Iterable[DataFile]) -> int:
    return sum(file.rows - file.live_rows for file in files)


def _all_unless_clean(files: Sequence[DataFile], definition: TableDefinition) -> Sequence[DataFile]:
    clean = len(sorted_runs(files, definition)) <= 1 and not _dead(files)
    return () if clean else files


def _some_runs(files: Sequence[DataFile], definition: TableDefinition) -> Sequence[DataFile]:
    runs = sorted_runs(files, definition)
    trigger = definition.options["num-sorted-run.compaction-trigger"]
    if len(runs) >= trigger:
        return list(itertools.chain.from_iterable(_smallest(runs, len(runs) - trigger + 2)))
    if _dead(files) > _DEAD_SHARE * sum(file.rows for file in files):
        return [file for file in files if _dead([file]) > _DEAD_SHARE * file.rows]
    return ()


def _smallest(runs: Sequence[Run], at_least: int) -> Sequence[Run]:
    """The smallest runs, and on as long as the next is no larger than all before: universal compaction by size."""
    ordered = sorted(runs, key=lambda run: (_size(run), run[0].path))
    taken = at_least
    while taken < len(ordered):
        before = sum(_size(run) for run in ordered[:taken])
        if _size(ordered[taken]) * 100 > before * (100 + _SIZE_RATIO_PERCENT):
            break
        taken += 1
    return ordered[:taken]


def _size(run: Run) -> int:
    """Bytes of the rows that live, as far as the number of rows tells."""
    return sum(file.size * file.live_rows // file.rows for file in run)


def _pieces(files: Sequence[DataFile], definition: TableDefinition, full: bool) -> Sequence[DataFile]:
    """Small files of a table without a key, in the order in which they were written."""
    small = [file for file in files if _is_small(file, definition)]
    worn = [file for file in files if _dead([file]) > (0 if full else _DEAD_SHARE * file.rows)]
    enough = 2 if full else definition.options["num-sorted-run.compaction-trigger"]
    chosen = {file.path: file for file in [*(small if len(small) >= enough else ()), *worn]}
    return sorted(chosen.values(), key=lambda file: (file.modified_ms, file.path))

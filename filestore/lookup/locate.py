"""Finds the rows of keys in the files of a slot.

A key has at most one live row in a slot, so the files with the most live rows are searched first, until all keys are
found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from filestore.files.writer import TableFiles
from filestore.lookup.file_lookup import FileLookup, Matches
from filestore.lookup.key_match import with_hashes
from filestore.model.files import DataFile

__all__ = ["locate"]


def locate(
    table: TableFiles, files: Sequence[DataFile], probes: pa.Table
) -> Iterator[tuple[DataFile, FileLookup, pa.Table, Matches]]:
    """Yields each file with a match, its look-up (valid until the next file), the probes, and all matches in the file.

    Args:
        table: The table.
        files: Live files of one slot.
        probes: Keys of the slot, sorted by the sort key, each once; there may be other columns, too.
    """
    asked = with_hashes(probes, table.definition.sort_key)
    for file in sorted(files, key=lambda file: file.live_rows, reverse=True):
        if not asked.num_rows:
            return
        lookup = FileLookup(table, file, cache=table.cache)
        left = np.ones(asked.num_rows, dtype=np.bool_)
        if found := list(lookup.find(asked)):
            positions, probes = (
                np.concatenate(part) for part in zip(*((m.positions, m.probes) for m in found), strict=True)
            )
            left[probes] = False
            yield file, lookup, asked, Matches(positions, probes, None)
        lookup.close()
        asked = asked.filter(pa.array(left))

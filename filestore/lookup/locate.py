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
    """Yields for each match its file, the file's look-up (valid until the next match), the probes, and the match.

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
        for match in lookup.find(asked):
            left[match.probes] = False
            yield file, lookup, asked, match
        lookup.close()
        asked = asked.filter(pa.array(left))

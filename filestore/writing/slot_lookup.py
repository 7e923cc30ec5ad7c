"""Looks rows up in all files of a slot: which keys are stored, and which rows win (FORMAT.md section 10).

It also reads the old rows if the images of the changes are wanted (FORMAT.md section 13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.changelog.images import StoredMatches, images, log_changes, unchanged
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.file_lookup import FileLookup, Matches
from filestore.merge import deduplicate
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Tombstones
from filestore.rows.fitting import fitted
from filestore.rows.frames import frame_of, gatherable
from filestore.writing.slot_result import MarkedRows

__all__ = ["Found", "SlotLookup"]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class Found:
    """The result of a look-up for each probe.

    Attributes:
        known: Whether its key is stored.
        lost: Whether it is late.
        same: Whether it puts the row that is stored; computed only where old rows are read.
        tombstoned: Whether it is late because its key was deleted with a higher sequence, and is not stored.
        winners: The stored rows to which probes lost, with the extra columns.
        replaced: The stored rows that leave the table; collected only where old rows are read.
    """

    known: Mask
    lost: Mask
    same: Mask
    tombstoned: Mask
    winners: list[pa.Table] = field(default_factory=list)
    replaced: list[StoredMatches] = field(default_factory=list)

    @property
    def dead(self) -> Mask:
        """The rows that are dead from birth, since a stored one stays."""
        return self.lost | self.same

    def only(self, kept: Mask) -> Found:
        """Returns the result for some of the probes, all of those among them whose old rows were read."""
        place = np.cumsum(kept) - 1
        return Found(
            self.known[kept],
            self.lost[kept],
            self.same[kept],
            self.tombstoned[kept],
            self.winners,
            [StoredMatches(place[stored.probes], stored.rows) for stored in self.replaced],
        )

    def images(self, rows: pa.Table, puts: Mask, definition: TableDefinition) -> pa.Table:
        """Returns the changes that the rows make, as change data."""
        gone = pl.concat([stored.rows for stored in self.replaced]) if self.replaced else None
        added = puts & ~self.dead
        after = rows.filter(pa.array(added)) if added.any() else None
        return images(gone, puts[self._probes()], after, self.known[added], definition)

    def log_changes(self, changes: pa.Table, puts: Mask) -> pa.Table:
        """Converts the change data that `images` returned into changes for the log."""
        return log_changes(changes, self.places(puts))

    def places(self, puts: Mask) -> Rows:
        """Returns for each change that `images` returns the number of its probe."""
        return np.concatenate([self._probes(), np.flatnonzero(puts & ~self.dead)])

    def _probes(self) -> Rows:
        """Returns the numbers of the chunk's rows whose stored rows leave the table."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(stored.probes for stored in self.replaced)])


@dataclass(frozen=True, slots=True)
class _Beaten:
    """Rows of a file that lose to probes. They leave the table unless they are put again unchanged."""

    path: str
    positions: Rows
    stored: StoredMatches


class SlotLookup:
    """Looks chunks of ascending keys up in a slot's files.

    Args:
        table: The table.
        base: The slot's live files, and its tombstones.
        superseded: Collects the positions of the stored rows that are replaced.
        extra: Columns of the winners that are read; the sequence field among them, if the table has one.
        images: Whether the old rows are read, too. Then a row that is put as it is stored changes nothing.
    """

    def __init__(
        self,
        table: TableFiles,
        base: Sequence[DataFile],
        superseded: MarkedRows,
        extra: Sequence[str],
        *,
        images: bool,
    ) -> None:
        self._definition = table.definition
        self._files = [(f, FileLookup(table, f, extra, table.cache)) for f in base if not isinstance(f, Tombstones)]
        sequence = tuple(filter(None, [table.definition.sequence_field]))
        self._tombstones = [FileLookup(table, run, sequence) for run in base if isinstance(run, Tombstones)]
        self._superseded = superseded
        self._images = images

    def find(self, rows: pa.Table, puts: Mask, images: Mask | None = None) -> Found:
        """Looks up the rows of a chunk, each of another key.

        Args:
            rows: The chunk; of deletes only the key and the sequence are used.
            puts: Which rows are puts.
            images: Of which of them the old rows are read, where that is not decided for all.
        """
        found = Found(*np.zeros((4, rows.num_rows), dtype=np.bool_))
        if not rows.num_rows:
            return found
        self._apply_tombstones(rows, found)
        names = self._definition.schema.names
        reads = np.full(rows.num_rows, self._images) if images is None else images
        beaten = []
        for file, lookup in self._files:
            for match in lookup.find(rows):
                found.known[match.probes] = True
                dies = self._beaten(match, rows, found)
                read = dies & reads[match.probes]
                self._superseded.add(file.path, match.positions[dies & ~read])
                if read.any():
                    stored = StoredMatches(match.probes[read], lookup.frame_at(match.positions[read], names))
                    beaten.append(_Beaten(file.path, match.positions[read], stored))
        if beaten:
            new = self._comparable(rows) if puts.any() else None
            leaving = _leaving(_together([part.stored for part in beaten]), new, puts, found)
            ends = np.cumsum([len(part.positions) for part in beaten])
            for part, leaves in zip(beaten, np.split(leaving, ends[:-1]), strict=True):
                self._superseded.add(part.path, part.positions[leaves])
        found.tombstoned &= ~found.known
        return found

    def _apply_tombstones(self, rows: pa.Table, found: Found) -> None:
        """Marks the rows whose key was deleted with a higher sequence."""
        sequence = self._definition.sequence_field
        for lookup in self._tombstones:
            for match in lookup.find(rows):
                assert sequence is not None, "tombstones without a sequence field"
                assert match.values is not None, "tombstones without sequences"
                new = rows.column(sequence).take(pa.array(match.probes))
                late = match.probes[~deduplicate.beats(new, match.values.column(sequence))]
                found.tombstoned[late] = found.lost[late] = True

    def _comparable(self, rows: pa.Table) -> pl.DataFrame:
        schema = pa.schema([column.with_nullable(True) for column in self._definition.schema.to_arrow()])
        return frame_of(fitted(rows, schema))

    def _beaten(self, match: Matches, rows: pa.Table, found: Found) -> Mask:
        """Returns which of the stored rows lose; those that win are added to `found`."""
        sequence = self._definition.sequence_field
        if sequence is None or match.values is None:
            return np.ones(len(match.probes), dtype=np.bool_)
        new = rows.column(sequence).take(pa.array(match.probes))
        wins = np.array(deduplicate.beats(new, match.values.column(sequence)))
        if not wins.all():
            found.lost[match.probes[~wins]] = True
            found.winners.append(match.values.filter(pa.array(~wins)))
        return wins


def _together(parts: Sequence[StoredMatches]) -> StoredMatches:
    """Joins the rows of all files, at most one for each probe: comparing them together costs less than by file."""
    if len(parts) == 1:
        return parts[0]
    rows = gatherable(pl.concat([part.rows for part in parts]))
    return StoredMatches(np.concatenate([part.probes for part in parts]), rows)


def _leaving(stored: StoredMatches, new: pl.DataFrame | None, puts: Mask, found: Found) -> Mask:
    """Returns which of the stored rows leave the table: those that are not put again unchanged."""
    if new is None:
        found.replaced.append(stored)
        return np.ones(len(stored.probes), dtype=np.bool_)
    same = unchanged(stored, new) & puts[stored.probes]
    found.same[stored.probes[same]] = True
    if not same.all():
        found.replaced.append(StoredMatches(stored.probes[~same], stored.rows.filter(pl.Series(~same))))
    return ~same

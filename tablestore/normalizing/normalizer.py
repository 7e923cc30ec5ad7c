"""`Normalizer` turns upserts into complete changes; it keeps the rows of the keys in a table of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import PathLike

import pyarrow as pa

from compaction.compact import compact_table
from compaction.in_writer import InWriter
from compaction.tombstones import clean_tombstones
from filestore.ambient import Ambient, system_ambient
from filestore.arguments import checks_arguments
from filestore.commit.proposal import AppVersion
from filestore.contexts import Closing
from filestore.delta.state import TableState
from filestore.errors import Conflict, TableStoreError
from filestore.life.consumers import Consumer
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.model.change_text import parse_changes
from filestore.model.changes import Change
from filestore.model.schema import Schema
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from filestore.retention.rules import first_retained
from filestore.storage.interface import Storage
from filestore.table import FileStore
from tablestore.incoming.given import Rows, arrow_parts
from tablestore.normalizing.changes import NormalizedBatch, normalized_schema
from tablestore.normalizing.progress import Positions, checked, goes_on, passed
from tablestore.normalizing.spec import NormalizerSpec
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.writer import TableWriter

__all__ = ["Normalizer", "expiry_due"]

logger = logging.getLogger(__name__)

APP = "tablestore.normalize"
_ORPHANED_MS = 24 * 60 * 60 * 1000
"""The age of files that no version will name any more: it is longer than any batch or compaction takes."""


@checks_arguments("rows")
class Normalizer(Closing):
    """Turns upserts into complete changes, batch by batch.

    The row of a new key becomes ``+I``. For a known key the former row is emitted as ``-U`` and the new one as ``+U``,
    or the former one as ``-D``. Upserts without an effect emit nothing: deletes of unknown keys, and unchanged rows.

    A folder contains the rows and the positions in the input: its size depends on the number of keys, not of upserts.
    A batch is applied as a whole or not at all, and once, even after crashes; if it is applied again, it has the same
    changes. One process at a time continues a state; another one that tries gets the same changes or fails.

        with Normalizer.open("state", "id BIGINT, status STRING", ["id"]) as normalizer:
            for rows, offsets in consume(begin=normalizer.positions):
                for changes in normalizer.apply(rows, offsets):
                    ...

    Args:
        spec: The columns, the key, and the place of the state.
        ambient: The clock, ids and random numbers; the real ones if None.

    Raises:
        InvalidRequest: the folder has another state (``other-state``).
    """

    def __init__(self, spec: NormalizerSpec, ambient: Ambient | None = None) -> None:
        self.spec = spec
        ambient = ambient or system_ambient()
        self._state = spec.opened(ambient)
        self._writer = TableWriter(self._state, lambda definition: None, ambient)
        self._beside = InWriter(self._state, then=_expire_if_due)
        self._taker: Consumer | None = None

    @classmethod
    def open(
        cls,
        state: str | PathLike[str],
        schema: pa.Schema | Schema | str,
        primary_key: Sequence[str],
        *,
        sequence_field: str | None = None,
        options: Mapping[str, str] | None = None,
        storage: Storage | None = None,
    ) -> Normalizer:
        """Continues the state in a folder, or creates one; arguments and errors are those of `NormalizerSpec.of`."""
        return cls(
            NormalizerSpec.of(
                state, schema, primary_key, sequence_field=sequence_field, options=options, storage=storage
            )
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes."""
        return normalized_schema(self._state.state().definition.schema)

    @property
    def positions(self) -> dict[str, int]:
        """The positions up to which the input was applied: a restart continues there. Empty at first."""
        return self._state.state().positions

    def apply(self, rows: Rows, positions: Positions) -> NormalizedBatch:
        """Applies a batch, and returns its changes.

        Args:
            rows: Rows as for `tablestore.Table.write`. ``_kind`` has the kind of each row: ``+I`` and ``+U`` add it,
                ``-D`` and ``-U`` delete the one with its key, and need no other columns; without the column all are
                added. Of rows with the same key the last wins, or the one with the highest sequence.
            positions: The positions at the batch's end in the parts of its input. They identify the batch: one with
                the same positions as a former batch is taken for that one, and its rows are not read.

        Raises:
            InvalidRequest: the rows do not fit (as `tablestore.Table.write`), ``bad-positions``, or
                ``positions-already-applied``: more of the input was applied, and not with such a batch. Nothing was
                changed.
            Conflict: ``other-batch``: another process has continued this state. Nothing was changed.
            Unavailable: the storage did not answer. Apply the batch again: if it was applied, it is recognised.
        """
        end = checked(positions)
        state = self._state.state()
        if not goes_on(state.positions, end):
            return self._again(state, end)
        app = AppVersion(APP, state.app_versions.get(APP, -1) + 1, tuple(sorted(end.items())))
        with GivenRows(arrow_parts(rows, state.definition.schema.to_arrow())) as given:
            snapshot = self._writer.write(given, app=app)
        if self._state.required(snapshot.version).positions != end:
            raise Conflict(
                f"another process has applied batch {app.version} of the state at {self.spec.state}, and it ended at "
                "other positions: let only one process continue, from its positions",
                code="other-batch",
            )
        self._keep_small()
        return self._batch(snapshot.version, app.version, end)

    def last(self) -> NormalizedBatch | None:
        """Returns the last batch, for callers that do not know whether its changes have arrived; None at first.

        Raises:
            NotFound: ``snapshot-expired``.
        """
        state = self._state.state()
        return self._again(state, None) if APP in state.app_versions else None

    def undelivered(self) -> NormalizedBatch | None:
        """Returns the last batch, unless it was passed to `delivered`: a restart has to deliver it again."""
        last, before = self.last(), Consumer(self._state, APP).position()
        return None if last is None or (before is not None and before.version >= last.version) else last

    def delivered(self, batch: NormalizedBatch) -> None:
        """Stores that a batch's changes have arrived, for `undelivered`; later versions do not expire.

        Raises:
            Conflict: ``consumer-taken``: another process has continued this state.
        """
        if self._taker is None:
            self._taker = Consumer(self._state, APP).register(batch.version)
        else:
            self._taker.advance(batch.version)

    def alter(self, *changes: Change | str) -> None:
        """Changes the columns of state and changes, as `tablestore.Table.alter`, with the same errors.

        A new nullable column needs no call: open the normalizer with it.
        """
        alter(self._state, parse_changes(changes), TableRewrite, lambda store: fold_table(store, full=True))

    def close(self) -> None:
        """Waits for a running compaction."""
        self._beside.close()

    def _again(self, state: TableState, end: Positions | None) -> NormalizedBatch:
        """Returns the batch with that end, or the last one, if its version is retained."""
        first = max(1, first_retained(state))
        for version in range(state.version, first - 1, -1):
            found = self._state.required(version).positions
            if found and end in (None, found):
                return self._batch(version, self._state.state(version).app_versions[APP], found)
        if end is None:
            return self._batch(first - 1, state.app_versions[APP], state.positions)  # reading it raises that it expired
        raise passed(self.spec.state, state.positions, end)

    def _batch(self, version: int, number: int, end: Positions) -> NormalizedBatch:
        return NormalizedBatch(number, dict(end), version, self._state, self._state.state().definition.schema)

    def _keep_small(self) -> None:
        """Compacts and expires, now or concurrently with the next batches. Their errors do not affect the batch."""
        definition = self._state.state().definition
        if definition.options["compaction.in-writer"]:
            self._beside.after_commit(definition)
            return
        try:
            if compact_table(self._state) is None:
                clean_tombstones(self._state)
            _expire_if_due(self._state)
        except TableStoreError as error:
            logger.warning("the state at %s is compacted later: %s", self.spec.state, error)


def expiry_due(state: TableState) -> bool:
    """Returns whether there are twice as many versions as are kept: an expiry adds one, and reads the whole log."""
    kept: int = state.definition.options["snapshot.num-retained.min"]
    return state.version - first_retained(state) >= 2 * kept


def _expire_if_due(store: FileStore) -> None:
    """Expires old versions, and removes files of processes that died."""
    if expiry_due(store.state()):
        expire(store)
        remove_orphans(store, find_orphans(store, store.ambient.now_ms() - _ORPHANED_MS, lambda: None))

"""`Normalizer`: upserts in, complete changes out; what it knows of the keys is a table of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Self

import pyarrow as pa

from compaction.folding import fold_table
from compaction.in_writer import InWriter
from compaction.local import compact_table
from compaction.rewrite import TableRewrite
from compaction.tombstones import bury
from filestore.alter import alter
from filestore.ambient import Ambient, system_ambient
from filestore.arguments import checks_arguments
from filestore.delta.conflict import AppVersion
from filestore.delta.state import TableState
from filestore.errors import Conflict, TableStoreError
from filestore.life.consumers import Consumer
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.life.retention import first_retained
from filestore.model.change_text import parse_changes
from filestore.model.changes import Change
from filestore.model.schema import Schema
from filestore.storage import Storage
from filestore.table import FileStore
from tablestore.given import Rows, arrow_rows
from tablestore.normalizing.changes import NormalizedBatch, normalized_schema
from tablestore.normalizing.progress import Positions, checked, goes_on, passed
from tablestore.normalizing.spec import NormalizerSpec
from tablestore.writing.given_rows import given_rows
from tablestore.writing.transaction import TableWriter

__all__ = ["Normalizer", "expiry_due"]

logger = logging.getLogger(__name__)

APP = "tablestore.normalize"
_ORPHANED_MS = 24 * 60 * 60 * 1000
"""Longer than any batch or compaction takes: a file that no version names by then will never be named."""


@checks_arguments("rows")
class Normalizer:
    """Turns upserts into complete changes, batch by batch: rows of a key that is new come as ``+I``.

    Of a key that is known the row that was there goes as ``-U`` and the new one comes as ``+U``, or it goes as ``-D``.
    What changes nothing gives nothing: deletes of keys that are not known, and rows that are as they were.

    What is known is kept in a folder, with how far the input was taken: as much as there are keys, however many rows
    come. A batch is taken wholly or not at all, and once, whatever dies; if it comes again it gives the same changes
    again. One process at a time goes on with a state; another one that still tries gives the same changes or fails.

        with Normalizer.open("state", "id BIGINT, status STRING", ["id"]) as normalizer:
            for rows, offsets in consume(begin=normalizer.positions):
                for changes in normalizer.apply(rows, offsets):
                    ...

    Args:
        spec: Columns, key, and where the state lies.
        ambient: Clock, ids, chance; the real ones if None.

    Raises:
        InvalidRequest: another state lies there (``other-state``).
    """

    def __init__(self, spec: NormalizerSpec, ambient: Ambient | None = None) -> None:
        self.spec = spec
        ambient = ambient or system_ambient()
        self._state = spec.opened(ambient)
        self._writer = TableWriter(self._state, lambda definition: None, ambient)
        self._beside = InWriter(self._state, then=_forget_if_due)
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
        """Goes on with the state in a folder, or begins one; for arguments and errors see `NormalizerSpec.of`."""
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
        """How far the input was taken: where to go on after a restart. Empty at first."""
        return self._state.state().positions

    def apply(self, rows: Rows, positions: Positions) -> NormalizedBatch:
        """Takes a batch, and gives what it changes.

        Args:
            rows: As in `tablestore.Table.write`. ``_kind`` says what each row does: ``+I`` and ``+U`` put it, ``-D``
                and ``-U`` take away the one with its key, of which nothing else is read; without the column all are
                put. Of rows with one key the last counts, or the one with the highest sequence.
            positions: Where the batch ends in the parts of the input that it is from. It is the batch's name: one
                that ends where a former one ended is taken for that one, and its rows are not looked at.

        Raises:
            InvalidRequest: rows that do not fit (as `tablestore.Table.write`), ``bad-positions``, or
                ``positions-passed``: the input was taken further, and not with such a batch. Nothing was changed.
            Conflict: ``other-batch``: another process has gone on with this state. Nothing was changed.
            Unavailable: storage did not answer. Apply the batch again: if it was taken, that is seen.
        """
        end = checked(positions)
        state = self._state.state()
        if not goes_on(state.positions, end):
            return self._again(state, end)
        app = AppVersion(APP, state.app_versions.get(APP, -1) + 1, tuple(sorted(end.items())))
        snapshot = self._writer.write(given_rows(arrow_rows(rows, state.definition.schema.to_arrow())), app=app)
        if self._state.required(snapshot.version).positions != end:
            raise Conflict(
                f"another process has taken batch {app.version} of the state at {self.spec.state}, and it ended "
                "elsewhere: let one go on alone, from its positions",
                code="other-batch",
            )
        self._keep_small()
        return self._batch(snapshot.version, app.version, end)

    def last(self) -> NormalizedBatch | None:
        """The batch that was taken last, for who does not know whether its changes have arrived; None at first.

        Raises:
            NotFound: ``snapshot-expired``.
        """
        state = self._state.state()
        return self._again(state, None) if APP in state.app_versions else None

    def undelivered(self) -> NormalizedBatch | None:
        """The batch that was taken last, unless `delivered` has been told of it: to be given again after a restart."""
        last, before = self.last(), Consumer(self._state, APP).position()
        return None if last is None or (before is not None and before.version >= last.version) else last

    def delivered(self, batch: NormalizedBatch) -> None:
        """Keeps in mind that a batch's changes have arrived, for `undelivered`; what comes after it does not expire.

        Raises:
            Conflict: ``consumer-taken``: another process has gone on with this state.
        """
        if self._taker is None:
            self._taker = Consumer(self._state, APP).register(batch.version)
        else:
            self._taker.advance(batch.version)

    def alter(self, *changes: Change | str) -> None:
        """Changes the columns of state and changes, as `tablestore.Table.alter` does; errors as there.

        A new nullable column needs no call: open the normalizer with it.
        """
        alter(self._state, parse_changes(changes), TableRewrite, lambda store: fold_table(store, full=True))

    def close(self) -> None:
        """Waits for a compaction that is under way."""
        self._beside.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _again(self, state: TableState, end: Positions | None) -> NormalizedBatch:
        """The batch that ended there, or the last one, if its version is kept."""
        first = max(1, first_retained(state))
        for version in range(state.version, first - 1, -1):
            found = self._state.required(version).positions
            if found and end in (None, found):
                return self._batch(version, self._state.state(version).app_versions[APP], found)
        if end is None:
            return self._batch(first - 1, state.app_versions[APP], state.positions)  # says that it has expired
        raise passed(self.spec.state, state.positions, end)

    def _batch(self, version: int, number: int, end: Positions) -> NormalizedBatch:
        return NormalizedBatch(number, dict(end), version, self._state, self._state.state().definition.schema)

    def _keep_small(self) -> None:
        """Compaction and expiry, beside what comes next or now. The batch stands, whatever becomes of them."""
        definition = self._state.state().definition
        if definition.options["compaction.in-writer"]:
            self._beside.after_commit(definition)
            return
        try:
            if compact_table(self._state) is None:
                bury(self._state)
            _forget_if_due(self._state)
        except TableStoreError as error:
            logger.warning("the state at %s is compacted later: %s", self.spec.state, error)


def expiry_due(state: TableState) -> bool:
    """Whether twice as many versions are there as are kept: an expiry is a version, too, and reads the whole log."""
    kept: int = state.definition.options["snapshot.num-retained.min"]
    return state.version - first_retained(state) >= 2 * kept


def _forget_if_due(store: FileStore) -> None:
    """Lets old versions go, and with them what processes that died have left."""
    if expiry_due(store.state()):
        expire(store)
        remove_orphans(store, find_orphans(store, store.ambient.now_ms() - _ORPHANED_MS, lambda: None))

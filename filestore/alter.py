"""Changing what a table is, as one commit (FORMAT.md section 3.1).

The plan is pure (`filestore.model.evolution`). Where it asks for new files, the caller brings somebody who writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from filestore.delta.conflict import BASE_EXPIRED, METADATA_CHANGED, RUNS_CAME, Proposal, Rebase
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, Conflict, InvalidRequest, TableStoreError, Unsupported
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.evolution import Evolution, evolve
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation, Snapshot
from filestore.table import FileStore

__all__ = ["BeginRewrite", "Rewrite", "alter", "plan_alter"]

logger = logging.getLogger(__name__)

_TRY_AGAIN = (METADATA_CHANGED, RUNS_CAME, BASE_EXPIRED, "file-gone", "run-gone", "merged-rows-changed")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 2.0


class Rewrite(Protocol):
    """The table's rows in files of a new schema, kept up with what others commit meanwhile."""

    def files(self, state: TableState) -> tuple[DataFile, ...]:
        """The live rows of a version in new files; of a later one, if called again: only what changed is done then."""

    def finish(self) -> None:
        """After the commit: removes what it does not name."""

    def discard(self) -> None:
        """Removes all that was written: nothing refers to it, or ever will."""


BeginRewrite = Callable[[FileStore, TableState, TableDefinition], Rewrite]
"""Begins to write a version's rows anew; nothing is done yet."""

Fold = Callable[[FileStore], object]
"""Leaves no run pending, by commits of its own."""


def plan_alter(store: FileStore, changes: Sequence[Change]) -> Evolution:
    """What changes would do to the newest version. Changes nothing; for errors see `evolve`."""
    return _planned(store, store.state(), changes)


def alter(
    store: FileStore, changes: Sequence[Change], begin: BeginRewrite | None = None, fold: Fold | None = None
) -> Snapshot:
    """Changes the table's definition; all changes or none.

    Args:
        store: The table.
        changes: Applied in their order.
        begin: Writes the rows anew where changes ask for it.
        fold: Merges pending runs where changes ask for it: they hold rows that only the old definition explains.

    Returns:
        The snapshot from which on the table is as asked for, with its notes; the newest one if it was so already.

    Raises:
        InvalidRequest: changes that cannot be made; see `evolve`. Nothing was changed.
        Unsupported: ``rewrite-needed``, ``pending-runs``: rows have to be written anew, or runs to be folded, and
            `begin` or `fold` is None.
        Conflict: other changes of the definition, or writers, were faster, again and again. Nothing was changed, but
            that runs may be folded.
        Unavailable: the storage did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
    """
    most = store.state().definition.options["commit.max-retries"]
    work = _Alteration(store, changes, begin, fold)
    for attempt in range(most + 1):
        try:
            return work.run()
        except Conflict as error:
            if error.code not in _TRY_AGAIN or attempt == most:
                work.discard()
                raise
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * (1 << min(attempt, 10)))
            store.ambient.sleep(store.ambient.chance() * pause)
        except CommitUnknown:
            raise  # nobody knows: files must stay
        except TableStoreError:
            work.discard()
            raise
    raise AssertionError("the loop returns or raises")


def _planned(store: FileStore, base: TableState, changes: Sequence[Change]) -> Evolution:
    evolution = evolve(base.definition, changes, store.ambient.new_id)
    if evolution.needs_no_rows and (base.files or base.pending()):
        raise InvalidRequest(
            "the table has rows, and a new column is null in them: add it without NOT NULL", code="not-null-column"
        )
    return evolution


class _Alteration:
    """Changes on their way. What was written anew is kept over attempts, as long as the definition is the same."""

    def __init__(
        self, store: FileStore, changes: Sequence[Change], begin: BeginRewrite | None, fold: Fold | None
    ) -> None:
        self._store = store
        self._changes = changes
        self._begin = begin
        self._fold = fold
        self._rewrite: tuple[TableDefinition, Evolution, Rewrite] | None = None

    def run(self) -> Snapshot:
        """One attempt."""
        base = self._store.state()
        if self._rewrite is not None and self._rewrite[0] != base.definition:
            self.discard()
        evolution = _planned(self._store, base, self._changes) if self._rewrite is None else self._rewrite[1]
        if evolution.definition == base.definition:
            return self._store.snapshot(base.version)
        if evolution.needs_folds and base.pending():
            base = self._folded(base)
        if evolution.rewrites and self._rewrite is None:
            self._rewrite = (base.definition, evolution, self._begun(base, evolution))
        snapshot = self._committed(base, evolution)
        if self._rewrite is not None:
            self._rewrite[2].finish()
        return snapshot

    def discard(self) -> None:
        """Removes what was written anew."""
        if self._rewrite is not None:
            self._rewrite[2].discard()
            self._rewrite = None

    def _folded(self, base: TableState) -> TableState:
        if self._fold is None:
            raise Unsupported(
                f"version {base.version} has pending runs, which only the columns and options that it has now explain: "
                "compact with full = true first, or change the table with Table.alter or `tablestore alter`",
                code="pending-runs",
            )
        self._fold(self._store)
        state = self._store.state()
        if state.definition != base.definition:
            raise Conflict("the table was changed while its runs were folded: try again", code=METADATA_CHANGED)
        return state

    def _begun(self, base: TableState, evolution: Evolution) -> Rewrite:
        if self._begin is None:
            raise Unsupported(
                "with schema.evolution-mode = rewrite all files are written anew when columns are dropped, renamed or "
                "widened: do it with Table.alter or `tablestore alter`",
                code="rewrite-needed",
            )
        return self._begin(self._store, base, evolution.definition)

    def _committed(self, base: TableState, evolution: Evolution) -> Snapshot:
        rewrite = None if self._rewrite is None else self._rewrite[2]

        def rebase(proposal: Proposal, state: TableState, _: Rebase) -> Proposal:
            if evolution.needs_no_rows and state.files:
                raise Conflict("rows were written while a NOT NULL column was added: try again", code=METADATA_CHANGED)
            return _proposed(proposal.commit_id, base, state, evolution, rewrite)

        with self._store.preparing(base):
            proposal = _proposed(self._store.ambient.new_id(), base, base, evolution, rewrite)
        committed = self._store.commit(base, proposal, rebase)
        for note in committed.snapshot.notes:
            logger.warning("version %d of %s: %s", committed.snapshot.version, self._store.location, note)
        return committed.snapshot


def _proposed(
    commit_id: str, base: TableState, state: TableState, evolution: Evolution, rewrite: Rewrite | None
) -> Proposal:
    adds = rewrite.files(state) if rewrite is not None else ()
    removes = tuple(state.files) if rewrite is not None else ()
    return Proposal(
        operation=Operation.ALTER,
        commit_id=commit_id,
        base_version=base.version,
        adds=adds,
        removes=removes,
        definition=evolution.definition,
        settled=evolution.needs_folds or evolution.needs_no_rows,
        whole_table=True,
        notes=evolution.readers,
        metrics={
            "files_added": len(adds),
            "files_removed": len(removes),
            "rows_rewritten": sum(file.live_rows for file in adds),
        },
    )

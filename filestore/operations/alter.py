"""Changes a table's definition in one commit (FORMAT.md section 3.1).

The plan is pure (`filestore.model.evolution`). If it needs new files, a `Rewrite` of the caller writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.new_files import any_fenced
from filestore.commit.proposal import FileChanges, Premises, Proposal
from filestore.commit.protocol import CommitAttempt, attempt_each
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest, Unsupported
from filestore.model.changes import Change
from filestore.model.definition import TableDefinition
from filestore.model.evolution import Evolution, evolve
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation, Snapshot
from filestore.table import FileStore

__all__ = ["BeginRewrite", "Rewrite", "SideEffect", "alter", "plan_alter"]

logger = logging.getLogger(__name__)


class Rewrite(Protocol):
    """Writes the table's rows into files of a new schema, and adapts these to what others commit meanwhile."""

    def write_files(self, state: TableState) -> tuple[DataFile, ...]:
        """Writes the live rows of a version to new files; a call for a later version writes only what has changed."""

    def finish(self) -> None:
        """Removes the files that the commit does not name."""

    def discard(self) -> None:
        """Removes all that was written, since no version names it, or ever will."""


BeginRewrite = Callable[[FileStore, TableState, TableDefinition], Rewrite]
"""Begins the rewrite of a version's rows; it writes nothing yet."""

Fold = Callable[[FileStore], object]
"""Folds all pending runs, by commits of its own."""


def plan_alter(store: FileStore, changes: Sequence[Change]) -> Evolution:
    """Plans changes of the newest version. It changes nothing; for errors see `evolve`."""
    return _planned(store, store.state(), changes)


class SideEffect(Protocol):
    """A change outside of the table's files that goes with a new definition, such as that of the log's retention."""

    def apply(self, base: TableState, after: TableDefinition) -> None:
        """Makes the change of the version `base`, before anything is committed; an error refuses the operation."""

    def undo(self, current: TableDefinition) -> None:
        """Makes what the table's definition asks for, if `apply` has changed it, because the operation has failed."""


def alter(
    store: FileStore,
    changes: Sequence[Change],
    begin: BeginRewrite | None = None,
    fold: Fold | None = None,
    effect: SideEffect | None = None,
) -> Snapshot:
    """Changes the table's definition: it makes all changes, or none.

    Args:
        store: The table.
        changes: The changes, which are applied in this order.
        begin: Rewrites the rows if the changes need it.
        fold: Folds pending runs if the changes need it, since only the old definition can read their rows.
        effect: A change outside of the files that is made at the same time.

    Returns:
        The snapshot that has the changes, with its notes; the newest one if there was nothing to change.

    Raises:
        InvalidRequest: changes that cannot be made; see `evolve`. Nothing was changed.
        Unsupported: ``rewrite-needed``, ``pending-runs``: rows have to be rewritten, or runs to be folded, and `begin`
            or `fold` is None.
        Conflict: other changes of the definition, or writers, were faster, again and again. Nothing was changed, except
            that runs may be folded.
        Unavailable: the storage did not answer. Nothing was changed, but for its subclass `CommitUnknown`.
    """
    work = _Alteration(store, changes, begin, fold, effect)
    committed = store.commit(lambda base: nullcontext(_Attempt(work, base)))
    if committed is None:
        return store.snapshot(work.unchanged)
    for note in committed.snapshot.notes:
        logger.warning("version %d of %s: %s", committed.snapshot.version, store.location, note)
    return committed.snapshot


def _planned(store: FileStore, base: TableState, changes: Sequence[Change]) -> Evolution:
    evolution = evolve(base.definition, changes, store.ambient.new_id)
    if evolution.needs_no_rows and (base.files or base.pending):
        raise InvalidRequest(
            "the table has rows, and a new column is null in them: add it without NOT NULL", code="not-null-column"
        )
    return evolution


@dataclass(slots=True)
class _Alteration:
    """Changes of one table. Rewritten files are kept over attempts as long as others do not change the definition."""

    store: FileStore
    changes: Sequence[Change]
    begin: BeginRewrite | None
    fold: Fold | None
    effect: SideEffect | None
    rewrite: Rewrite | None = None
    rewritten: tuple[TableDefinition, Evolution] | None = None
    since: int = 0
    """The version on which the rewrite began."""
    unchanged: int = 0
    """The version that has all the changes already."""

    def planned(self, base: TableState) -> Evolution:
        """Plans the changes of a version; returns the plan of the rewrite that was begun, if it is still valid."""
        if self.rewritten is not None and self.rewritten[0] == base.definition:
            return self.rewritten[1]
        self.discard_rewrite()
        return _planned(self.store, base, self.changes)

    def begin_rewrite(self, base: TableState, evolution: Evolution) -> None:
        """Begins the rewrite of the rows, unless it has begun already, and its files are still there."""
        if self.rewrite is not None and any_fenced(self.store.delta_log, self.since, base.version):
            self.discard_rewrite()
        if self.rewrite is not None:
            return
        if self.begin is None:
            raise Unsupported(
                "with schema.evolution-mode = rewrite all files are rewritten when columns are dropped, renamed or "
                "widened: do it with Table.alter or `tablestore alter`",
                code="rewrite-needed",
            )
        self.rewrite = self.begin(self.store, base, evolution.definition)
        self.rewritten, self.since = (base.definition, evolution), base.version

    def folded(self, base: TableState) -> TableState:
        """Folds all pending runs, and returns the version after that."""
        if self.fold is None:
            raise Unsupported(
                f"version {base.version} has pending runs, which can only be read with its columns and options: "
                "compact with full = true first, or change the table with Table.alter or `tablestore alter`",
                code="pending-runs",
            )
        self.fold(self.store)
        state = self.store.state()
        if state.definition != base.definition:
            raise Conflict(
                "the table was changed while its runs were folded: try again", code="metadata-changed", again=True
            )
        return state

    def discard_rewrite(self) -> None:
        """Removes the rewritten files."""
        if self.rewrite is not None:
            self.rewrite.discard()
        self.rewrite = self.rewritten = None


class _Attempt(CommitAttempt):
    """One attempt of an alteration."""

    def __init__(self, work: _Alteration, base: TableState) -> None:
        self.base = base
        self._work = work
        self._evolution: Evolution | None = None

    def prepare(self) -> Proposal | None:
        work = self._work
        self._evolution = evolution = work.planned(self.base)
        if evolution.definition == self.base.definition:
            work.unchanged = self.base.version
            return None
        if work.effect is not None:
            work.effect.apply(self.base, evolution.definition)
        if evolution.needs_folds and self.base.pending:
            self.base = work.folded(self.base)
        if evolution.rewrites:
            work.begin_rewrite(self.base, evolution)
        return _proposed(work.store.ambient.new_id(), self.base, self.base, evolution, work.rewrite)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        assert self._evolution is not None
        if self._evolution.needs_no_rows and state.files:
            raise Conflict(
                "rows were written while a NOT NULL column was added: try again", code="metadata-changed", again=True
            )
        return _proposed(proposal.commit_id, self.base, state, self._evolution, self._work.rewrite)

    def finish(self, committed: Committed) -> None:
        if self._work.rewrite is not None:
            self._work.rewrite.finish()

    def discard(self, *, again: bool) -> None:
        """Removes the rewritten files, and takes the effect back.

        The next attempt keeps both. If another process has made the same change meanwhile, that attempt has nothing to
        do, and the effect is the one that the table's definition asks for.
        """
        if not again:
            attempt_each("of a change of the definition", self._undo_effect, self._work.discard_rewrite)

    def _undo_effect(self) -> None:
        if self._work.effect is not None:
            self._work.effect.undo(self._work.store.state().definition)


def _proposed(
    commit_id: str, base: TableState, state: TableState, evolution: Evolution, rewrite: Rewrite | None
) -> Proposal:
    adds = rewrite.write_files(state) if rewrite is not None else ()
    removes = tuple(state.files) if rewrite is not None else ()
    return Proposal(
        operation=Operation.ALTER,
        commit_id=commit_id,
        base_version=base.version,
        files=FileChanges(adds=adds, removes=removes),
        premises=Premises(all_slots=True, no_pending_runs=evolution.needs_folds or evolution.needs_no_rows),
        definition=evolution.definition,
        notes=evolution.readers,
        metrics={
            "files_added": len(adds),
            "files_removed": len(removes),
            "rows_rewritten": sum(file.live_rows for file in adds),
        },
    )

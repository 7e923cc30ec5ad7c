"""Fences: versions without effect that refuse commits whose writers were given up (FORMAT.md section 15).

A writer that was taken for dead may go on later. Before another process aborts its log transactions, it writes a fence:
a version that names the writer's commit. The writer's own commit, if it comes, has a base from before the fence, since
a base is read before the first transaction begins. So it finds the fence on its way to a free version, and is refused;
or it has committed before the fence, and then whoever wrote the fence sees that when it reads the history once more.
Files that are removed as orphans are fenced in the same way, by their paths: for most writers no lease shows that they
live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from filestore.ambient import Ambient
from filestore.commit.loop import Committed
from filestore.commit.proposal import FileChanges, LogChanges, Proposal
from filestore.delta.log import DeltaLog
from filestore.delta.state import TableState
from filestore.model.snapshot import Operation

__all__ = ["fence", "fence_files", "fence_since"]


class Fenced(Protocol):
    """The part of a table that this module needs (`filestore.table.FileStore`)."""

    @property
    def ambient(self) -> Ambient:
        """The source of ids."""

    def commit_metadata(self, propose: Callable[[TableState], Proposal | None]) -> Committed | None:
        """Commits a proposal that rests on metadata only."""


def fence(store: Fenced, commit_ids: Collection[str]) -> None:
    """Writes a version after which no commit with one of these ids is possible, nor one under their leases.

    A fence that another process writes at the same time counts as this one. An older one does not: a transaction that
    is published again has its commit's id, too, and may have begun after it.

    REQUIRES: the log transactions that are to be aborted exist already, so that their commits have older bases.

    Raises:
        Conflict: ``too-many-races``.
        Unavailable: the storage does not answer; perhaps the fence is there (`CommitUnknown`), which harms nobody.
    """
    changes = LogChanges(fenced=frozenset(commit_ids))
    new_id = store.ambient.new_id
    store.commit_metadata(lambda base: Proposal(Operation.FENCE, new_id(), base.version, log=changes))


def fence_files(store: Fenced, paths: Collection[str]) -> None:
    """Writes a version after which no commit may name these files for the first time (`filestore.commit.new_files`).

    REQUIRES: the files exist already, so that the commits of their writers have older bases. A version may name some of
    them meanwhile: whoever removes them reads the history once more.

    Raises:
        Conflict: ``too-many-races``.
        Unavailable: the storage does not answer; perhaps the fence is there (`CommitUnknown`), which harms nobody.
    """
    changes, count = FileChanges(orphans=frozenset(paths)), {"files_fenced": len(paths)}
    new_id = store.ambient.new_id
    store.commit_metadata(lambda base: Proposal(Operation.FENCE, new_id(), base.version, files=changes, metrics=count))


def fence_since(log: DeltaLog, base: TableState, commit_id: str) -> int | None:
    """Returns the version after `base` that fences a commit; None if there is none, or if it has expired."""
    for entry in log.read_entries_after(base.version):
        if commit_id in entry.snapshot().fenced:
            return entry.version
    return None

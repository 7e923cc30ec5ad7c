"""Holds a writer's lease during a commit to the log, and converts the commit's errors if it was fenced meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filestore.commit.conflict import fenced
from filestore.commit.fence import fence_since
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, Conflict, Corrupt, NotFound, TableStoreError, Unavailable
from filestore.table import FileStore

__all__ = ["lease"]


@contextmanager
def lease(filestore: FileStore, base: TableState, commit_id: str, *, again: bool = False) -> Iterator[None]:
    """Holds the lease of a commit.

    A writer that was given up may find its log transactions aborted before it comes to its commit, and its files
    removed as orphans. The error that this causes depends on the log and on the moment, so the block ends with the
    conflict that is the reason.

    Args:
        filestore: The table.
        base: The version on which the commit is prepared, or an earlier one.
        commit_id: The commit.
        again: Whether a commit that was given up may begin again by itself.

    Raises:
        Conflict: ``fenced``.
        NotFound, Unavailable, Unsupported: see `filestore.leases.interface.WriterLeases.hold`.
    """
    try:
        with filestore.leases.hold(commit_id):
            yield
    except CommitUnknown:
        raise
    except (Conflict, Unavailable, NotFound, Corrupt) as error:
        version = None if filestore.leases.certain else _fence(filestore, base, commit_id)
        if version is None or error.code == "fenced":
            raise
        raise fenced(version, commit_id, again=again) from error


def _fence(filestore: FileStore, base: TableState, commit_id: str) -> int | None:
    try:
        return fence_since(filestore.delta_log, base, commit_id)
    except TableStoreError:
        return None  # the error that is there already says more

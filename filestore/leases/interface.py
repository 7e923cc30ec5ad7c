"""The interface of writers' leases (log/table/PROTOCOL.md section 8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

__all__ = ["WriterLeases"]


class WriterLeases(Protocol):
    """The leases of one table: one for each commit in progress that writes to the table's log. Threads may share it.

    A log transaction that no snapshot names belongs to a write in progress or to a dead one, and a lease says which.
    """

    @property
    def certain(self) -> bool:
        """Returns whether a writer without its lease surely commits no more.

        If not, whoever aborts its transactions fences its commit first (`filestore.commit.fence`).
        """

    def hold(self, commit_id: str) -> AbstractContextManager[None]:
        """Holds the lease of a commit until the context or the process ends. After an error its file stays.

        If another process holds it, the call waits for the end of that.

        Raises:
            NotFound: ``table-replaced``: the table was dropped. On a local disk none of its folders and files is
                created again. A store of objects has no folders that could be missing, so there the block finds it out:
                the lease is an object until then, or stays one if the process dies before. A table of the same name can
                be created all the same (`filestore.layout.is_stray`).
            Unavailable: the storage does not answer.
            Unsupported: ``no-conditional-writes``.
        """

    def dead_among(self, commit_ids: Collection[str]) -> set[str]:
        """Returns those of the commits whose writers are dead.

        REQUIRES: a log transaction of each exists, so that its writer has taken its lease before.
        """

    def abandoned(self) -> list[str]:
        """Lists commits whose writers died or failed, and left their files.

        A commit that is just beginning may be among them, without writes.
        """

    def wait_until_known(self) -> None:
        """Waits until it is known of each lease whether its writer lives."""

    def at_work_since_ms(self) -> int | None:
        """Returns when the oldest lease was taken whose writer may still commit.

        Returns:
            Milliseconds since 1970 UTC, by the storage's clock; None if there is no such lease.
        """

    def remove(self, commit_ids: Iterable[str]) -> None:
        """Removes the files of abandoned commits after their clean-up; those that somebody holds meanwhile stay."""

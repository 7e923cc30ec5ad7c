"""Keeps a table fast, small and sound, when its owner asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from compaction.compact import compact_slots
from compaction.maintenance import Maintenance, maintain
from compaction.on_request import compact_on_request
from filestore.arguments import checks_arguments
from filestore.checks.leftovers import Leftover
from filestore.checks.report import Finding, Invariant, Report
from filestore.doctor import examine
from filestore.errors import TableStoreError
from filestore.life.expiry import Expiry, expire
from filestore.life.orphans import clean_orphans
from filestore.model.snapshot import Snapshot
from filestore.operations.fold import fold_slots
from filestore.progress import Observe
from filestore.table import FileStore
from filestore.unreadable import is_unreadable
from managed_table.opened import OpenedTable
from tablestore.logcare.examination import examine_log

__all__ = ["Care", "examine_opened", "why_unread"]


@checks_arguments()
class Care:
    """The part of `tablestore.Table` that cares for its files.

    Attributes:
        opened: The table, with its log.
        filestore: Its files.
    """

    opened: OpenedTable
    filestore: FileStore

    def compact(
        self,
        full: bool = False,
        *,
        partitions: Sequence[Mapping[str, Any]] | None = None,
        observe: Observe | None = None,
    ) -> Snapshot | None:
        """Folds pending runs and merges sorted runs of the buckets that have many, or of all with ``full=True``.

        With `partitions`, which are as for `drop_partitions`, it does so in these only. It returns the last snapshot
        that it committed; None if no bucket needed anything. `observe` takes how many rows are merged so far.
        """
        return compact_on_request(
            self.filestore,
            full=full,
            partitions=partitions,
            fold_runner=partial(fold_slots, observe=observe),
            runner=partial(compact_slots, observe=observe),
        )

    def expire(self, *, dry_run: bool = False, keep: timedelta = timedelta(0)) -> Expiry:
        """Expires old versions by the options ``snapshot.*``, except those that tags and consumers keep.

        Args:
            dry_run: Only returns what would be removed.
            keep: Every version that was the newest one within this duration stays, whatever the options say.
        """
        return expire(self.filestore, dry_run=dry_run, keep=keep)

    def maintain(self) -> Maintenance:
        """Creates the tag that is due and expires versions: call it from time to time. It is safe to repeat."""
        return maintain(self.opened)

    def remove_orphans(
        self, older_than: timedelta = timedelta(days=1), *, dry_run: bool = True, even_young: bool = False
    ) -> list[Leftover]:
        """Removes files that no version names, and refuses the commits of writers that were about to name them.

        Args:
            older_than: How long ago they were written. A writer that takes longer, without a lease, begins again.
            dry_run: Only lists them.
            even_young: Whether `older_than` may be less than an hour otherwise (else ``young-orphans``).
        """
        age_ms = older_than // timedelta(milliseconds=1)
        return clean_orphans(self.filestore, age_ms, dry_run=dry_run, even_young=even_young)

    def examine(self) -> Report:
        """Checks every invariant of FORMAT.md on stored bytes, and asks the log: what `tablestore doctor` prints."""
        return examine_opened(self.opened)


def examine_opened(table: OpenedTable, observe: Observe | None = None) -> Report:
    """Checks every invariant of FORMAT.md on stored bytes, and asks the log.

    Of a table whose newest version cannot be read it checks what can be. `observe` takes how many files were read.

    Raises:
        NotFound: the table was dropped (``no-table``), or made again (``table-replaced``).
        Unavailable: the storage of the table's files does not answer.
    """
    error = why_unread(table)
    if error is None:
        return examine(table.filestore, observe=observe).with_more(examine_log(table))
    report = examine(FileStore(table.storage, table.identity.location, table.ambient, table.identity.identifier))
    return report if report.problems else report.with_more([Finding(Invariant.LOG_ENTRY, error.message)])


def why_unread(table: OpenedTable) -> TableStoreError | None:
    """Returns the error of a newest version that is damaged, or lacks an entry or a checkpoint; None if it is read."""
    try:
        table.filestore.state()
    except TableStoreError as error:
        if not is_unreadable(error):
            raise
        return error
    return None

"""Keeps a table fast and small, when its owner asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from compaction.maintenance import Maintenance, maintain
from compaction.on_request import compact_on_request
from filestore.arguments import checks_arguments
from filestore.checks.leftovers import Leftover
from filestore.life.expiry import Expiry, expire
from filestore.life.orphans import clean_orphans
from filestore.model.snapshot import Snapshot
from filestore.table import FileStore
from managed_table.opened import OpenedTable

__all__ = ["Care"]


@checks_arguments()
class Care:
    """The part of `tablestore.Table` that cares for its files.

    Attributes:
        opened: The table, with its log.
        filestore: Its files.
    """

    opened: OpenedTable
    filestore: FileStore

    def compact(self, full: bool = False, *, partitions: Sequence[Mapping[str, Any]] | None = None) -> Snapshot | None:
        """Folds pending runs and merges sorted runs of the buckets that have many, or of all with ``full=True``.

        With `partitions`, which are as for `drop_partitions`, it does so in these only. It returns the last snapshot
        that it committed; None if no bucket needed anything.
        """
        return compact_on_request(self.filestore, full=full, partitions=partitions)

    def expire(self, *, dry_run: bool = False) -> Expiry:
        """Expires old versions by the options ``snapshot.*``, except those that tags and consumers keep."""
        return expire(self.filestore, dry_run=dry_run)

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

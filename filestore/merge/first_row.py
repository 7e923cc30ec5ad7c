"""The engine ``first-row``: keeps the row of a key that arrived first (FORMAT.md section 9.2). Pure."""

from __future__ import annotations

from filestore.lazily import pl
from filestore.merge.fieldwise import Merged, effective_rows
from filestore.merge.history import GROUP, History
from filestore.model.merging import MergeSpec
from filestore.model.own_columns import is_own

__all__ = ["first_rows"]


def first_rows(history: History, spec: MergeSpec) -> Merged:
    """Returns the first row of each key; for keys that the table does not have yet.

    Raises:
        InvalidRequest: ``delete-refused``.
    """
    names = [name for name in history.frame.columns if not is_own(name)]
    kept = (
        effective_rows(history, spec).frame.group_by(GROUP, maintain_order=True).agg(pl.col(n).first() for n in names)
    )
    rows = history.every_key(kept.with_columns(_alive=True))
    return Merged(rows.select(names), rows["_alive"].fill_null(False))

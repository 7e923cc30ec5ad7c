"""The questions that commands ask before they remove something: what goes, as versions, rows and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from filestore.errors import NotFound, TableStoreError

if TYPE_CHECKING:
    from filestore.checks.leftovers import Leftover
    from filestore.delta.state import TableState
    from filestore.life.expiry import Expiry
    from filestore.model.files import DataFile, PendingRun
    from filestore.model.partition_set import PartitionSet
    from tablestore import Store, Table

__all__ = ["about_drop", "about_expiry", "about_orphans", "about_partitions", "about_rollback"]

_MOST_NAMES = 5


def about_orphans(found: Sequence[Leftover]) -> str:
    """Asks about the removal of orphans."""
    kinds = Counter(left.kind for left in found)
    listed = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(kinds.items()))
    return f"Remove these {len(found):,} files ({listed}) with {sum(left.size for left in found):,} bytes?"


def about_expiry(name: str, table: Table, planned: Expiry) -> str:
    """Asks about an expiry, from which no version comes back."""
    from filestore.life.expiry import stored_rows  # loads what tables need

    return (
        f"Let {planned.versions:,} versions of {name} expire, all before version {planned.first}, and remove "
        f"{len(planned.files):,} files with {stored_rows(table.filestore, planned):,} rows, counting those that later "
        f"files have, too, and {planned.bytes:,} bytes? They can never be read or restored again."
    )


def about_rollback(name: str, table: Table, version: int) -> str:
    """Asks about a rollback; raises as the rollback does if that version cannot be read."""
    newest, older = table.filestore.state(), table.filestore.state(version)
    return (
        f"Roll {name} back from version {newest.version} ({_contents([newest])}) to version {version} "
        f"({_contents([older])})? What {newest.version - version:,} versions have changed is undone by a new version."
    )


def about_partitions(name: str, table: Table, specs: Sequence[str], chosen: PartitionSet) -> str:
    """Asks about a drop of partitions."""
    state = table.filestore.state()
    files, pending = list(state.files.within(chosen)), list(state.pending.within(chosen))
    return f"Drop {' and '.join(specs)} of {name}, with {_of_files(files, pending)}?"


def about_drop(store: Store, name: str, *, cascade: bool) -> str | None:
    """Asks about a drop; None if there is nothing of that name, so that the drop itself says so."""
    try:
        return _about_relation(store, name) if "." in name else _about_database(store, name, cascade=cascade)
    except NotFound:
        return None


def _about_relation(store: Store, name: str) -> str:
    from tablestore.table import Table  # loads what tables need

    database, _, relation = name.partition(".")
    if relation in store.list_views(database):
        return f"Drop the view {name}? The tables that it reads stay."
    try:
        table = store.any_table(name)
        if not isinstance(table, Table):
            return f"Drop the table {name}? Its topic stays."
        state, versions = table.filestore.state(), len(table.filestore.delta_log.versions())
    except NotFound:
        raise
    except TableStoreError as error:
        return f"Drop {name} permanently, with all its files, which cannot be read ({error.message})?"
    return f"Drop {name} permanently, with {versions:,} versions and {_contents([state])}?"


def _about_database(store: Store, name: str, *, cascade: bool) -> str:
    tables, views = store.list_tables(name), store.list_views(name)
    if not cascade or not (tables or views):
        return f"Drop the database {name}?"
    names = [*tables, *views]
    listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    return (
        f"Drop the database {name} permanently, with {len(tables):,} tables and {len(views):,} views ({listed}) and "
        f"{_contents_of(store, [f'{name}.{table}' for table in tables])}?"
    )


def _contents_of(store: Store, names: Sequence[str]) -> str:
    """Adds up what tables have; says how many of them cannot be read."""
    from tablestore.table import Table  # loads what tables need

    states, unknown = [], 0
    for name in names:
        try:
            table = store.any_table(name)
            states += [table.filestore.state()] if isinstance(table, Table) else []
        except TableStoreError:
            unknown += 1
    return _contents(states) + (f", and {unknown:,} tables that cannot be read" if unknown else "")


def _contents(states: Sequence[TableState]) -> str:
    files = [file for state in states for file in state.files]
    return _of_files(files, [run for state in states for run in state.pending])


def _of_files(files: Collection[DataFile], pending: Collection[PendingRun]) -> str:
    rows, size = sum(file.live_rows for file in files), sum(file.size for file in files)
    changes, size = sum(run.rows for run in pending), size + sum(run.size for run in pending)
    waiting = f" and {changes:,} pending changes" if changes else ""
    return f"{rows:,} rows{waiting} in {len(files) + len(pending):,} files with {size:,} bytes"

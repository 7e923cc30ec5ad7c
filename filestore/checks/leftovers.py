"""Finds files that no retained version names: crashed or running writers left them (FORMAT.md section 12.5)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass

from filestore import layout
from filestore.checks.report import Findings, Invariant
from filestore.delta.state import TableState
from filestore.errors import Corrupt
from filestore.retention.holds import is_lapsed, read_hold
from filestore.retention.overlays import OVERLAY_MS, old_overlays
from filestore.retention.sidecars import SIDECAR_MS, unnamed_sidecars
from filestore.storage.interface import FileInfo
from filestore.table import FileStore

__all__ = ["Leftover", "check_leftovers", "leftovers"]

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_FOREIGN = "file of unknown kind"
_COMMITTED = frozenset(["data file", "deletion vector", "run", "change file"])
"""Kinds of files that versions name."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that no version names.

    Attributes:
        path: The path relative to the table.
        kind: The kind of file, for people.
        size: The file's bytes.
        modified_ms: When it was last written, in milliseconds since 1970 UTC.
    """

    path: str
    kind: str
    size: int
    modified_ms: int

    @property
    def is_ours(self) -> bool:
        """Returns whether Tablestore writes such files."""
        return self.kind != _FOREIGN

    @property
    def can_be_committed(self) -> bool:
        """Returns whether a writer may still be about to commit it."""
        return self.kind in _COMMITTED


def check_leftovers(
    store: FileStore,
    files: Collection[FileInfo],
    referenced: Container[str],
    state: TableState | None,
    findings: Findings,
) -> None:
    """Reports orphans with size and age. A young one may belong to a write that is still running."""
    now = store.ambient.now_ms()
    for left in leftovers(store, files, referenced, state):
        code = Invariant.ORPHAN if left.is_ours else Invariant.FOREIGN_FILE
        shown = f"{left.size} bytes, {_age(left, now)}"
        findings.add(code, f"{left.kind} {left.path} ({shown}) belongs to no version", left.path)


def leftovers(
    store: FileStore, files: Collection[FileInfo], referenced: Container[str], state: TableState | None
) -> Iterator[Leftover]:
    """Yields the files that nothing refers to.

    Args:
        store: The table.
        files: All files in the table's folder.
        referenced: The paths, relative to the table, that some version names.
        state: The newest version, which says when consumers lapse; without it consumers are not checked.
    """
    prefix, overlays = layout.join(store.location, ""), layout.join(store.location, layout.OVERLAYS)
    overlaid = [info for info in files if info.path.startswith(f"{overlays}/")]
    old = tuple(f"{path}/" for path in old_overlays(overlays, overlaid, store.ambient.now_ms() - OVERLAY_MS))
    unnamed = unnamed_sidecars(store.delta_log, files, store.ambient.now_ms() - SIDECAR_MS)
    yield from (Leftover(info.path.removeprefix(prefix), "sidecar", info.size, info.modified_ms) for info in unnamed)
    for info in files:
        relative = info.path.removeprefix(prefix)
        if relative.startswith(f"{layout.SIDECARS}/"):
            continue
        if relative in referenced or relative.startswith(f"{layout.LOG_STORE}/"):
            continue
        if info.path.startswith(f"{overlays}/") and not info.path.startswith(old):
            continue  # readers may need it
        if (staged := layout.parse_staged_commit(relative)) is not None:
            # a later one may be claimed, and is needed until it is published
            kind = "staged entry" if state is not None and staged <= state.version else None
        elif relative.startswith(f"{layout.CONSUMERS}/") and not relative.endswith(".tmp"):
            kind = _consumer_kind(store, relative, state)
        else:
            kind = _kind(relative)
        if kind is not None:
            yield Leftover(relative, kind, info.size, info.modified_ms)


def _consumer_kind(store: FileStore, relative: str, state: TableState | None) -> str | None:
    consumer_id = layout.parse_consumer(relative.removeprefix(f"{layout.CONSUMERS}/"))
    if consumer_id is None:
        return _FOREIGN
    if state is None:
        return None
    try:
        hold = read_hold(store.storage, store.location, consumer_id)
    except Corrupt:
        return _FOREIGN
    if hold is None:
        return None
    gone = hold.table_id != state.table_id or is_lapsed(hold, state, store.ambient.now_ms())
    return "lapsed consumer" if gone else None


def _kind(relative: str) -> str | None:
    """The kind of an unreferenced file; None for files that need no reference."""
    folder, _, name = relative.rpartition("/")
    if folder == layout.DELTA_LOG and not name.startswith("."):
        known = layout.parse_log_entry(name) is not None or relative == layout.LAST_CHECKPOINT
        return None if known else "temporary file" if "#" in name or ".tmp" in name else _FOREIGN
    if name.endswith(".tmp"):
        return "temporary file"
    if layout.is_vector(relative):
        return "deletion vector"
    if relative.startswith(f"{layout.OVERLAYS}/"):
        return "file of an overlay"
    if relative.startswith(f"{layout.RUNS}/"):
        return "run"
    if relative.startswith(f"{layout.CHANGE_DATA}/"):
        return "change file"
    return "data file" if name.endswith(".parquet") else _FOREIGN


def _age(left: Leftover, now_ms: int) -> str:
    age = max(0, now_ms - left.modified_ms)
    for unit, name in ((_DAY_MS, "days"), (_HOUR_MS, "hours"), (_MINUTE_MS, "minutes")):
        if age >= 2 * unit:
            return f"{age // unit} {name} old"
    return f"{age // 1000} seconds old"

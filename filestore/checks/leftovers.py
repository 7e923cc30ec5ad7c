"""Files that no retained version names: left by crashed or running writers (FORMAT.md section 12.5)."""

from __future__ import annotations

from filestore import layout
from filestore.checks.report import Findings, Invariant
from filestore.storage import FileInfo
from filestore.table import FileStore

__all__ = ["check_leftovers"]

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000


def check_leftovers(store: FileStore, referenced: set[str], findings: Findings) -> None:
    """Lists orphans with size and age. A young one may belong to a write that is still running."""
    now = store.ambient.now_ms()
    prefix = layout.join(store.location, "")
    for info in store.storage.walk(store.location):
        relative = info.path.removeprefix(prefix)
        if relative in referenced or relative.startswith(f"{layout.LOG_STORE}/"):
            continue
        kind = _kind(relative)
        if kind is None:
            continue
        code = Invariant.FOREIGN_FILE if kind == "file of unknown kind" else Invariant.ORPHAN
        findings.add(code, f"{kind} {relative} ({_size(info)}, {_age(info, now)}) belongs to no version", relative)


def _kind(relative: str) -> str | None:
    """What an unreferenced file is; None for files that nothing has to refer to."""
    folder, _, name = relative.rpartition("/")
    if folder == layout.DELTA_LOG and not name.startswith("."):
        known = layout.parse_log_entry(name) is not None or relative == layout.LAST_CHECKPOINT
        return None if known else "temporary file" if "#" in name or ".tmp" in name else "file of unknown kind"
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
    return "data file" if name.endswith(".parquet") else "file of unknown kind"


def _size(info: FileInfo) -> str:
    return f"{info.size} bytes"


def _age(info: FileInfo, now_ms: int) -> str:
    age = max(0, now_ms - info.modified_ms)
    for unit, name in ((_DAY_MS, "days"), (_HOUR_MS, "hours"), (_MINUTE_MS, "minutes")):
        if age >= 2 * unit:
            return f"{age // unit} {name} old"
    return f"{age // 1000} seconds old"

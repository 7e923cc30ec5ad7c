"""Checks that the versions that should be readable are readable (FORMAT.md section 12.1 and 12.2)."""

from __future__ import annotations

import json
from collections.abc import Collection

from filestore import layout
from filestore.checks.changes import BROKEN
from filestore.checks.report import Findings, Invariant
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.retention.history import lifetimes_until
from filestore.retention.lifetimes import Retained
from filestore.retention.rules import RETENTION_DOMAIN, TAG_DOMAIN, Tag, first_retained, is_retained, tags_of
from filestore.storage.interface import FileInfo
from filestore.table import FileStore

__all__ = ["check_reach", "check_retained_files", "check_retention"]


def check_retention(findings: Findings, before: TableState | None, after: TableState, entry: Commit) -> None:
    """Checks what an entry says about retained versions and tags."""
    for action in entry.actions:
        domain = action.get("domainMetadata")
        if domain is None or before is None:
            continue
        if domain["domain"] == RETENTION_DOMAIN:
            _check_first(findings, before, after)
        elif domain["domain"].startswith(TAG_DOMAIN) and not domain["removed"]:
            name = domain["domain"].removeprefix(TAG_DOMAIN)
            _check_tag(findings, before, Tag.from_json(name, json.loads(domain["configuration"])))


def _check_first(findings: Findings, before: TableState, after: TableState) -> None:
    if not first_retained(before) <= first_retained(after) <= before.version:
        findings.add(
            Invariant.RETENTION,
            f"version {after.version} retains versions from {first_retained(after)} on; before, it was "
            f"{first_retained(before)}",
            version=after.version,
        )


def _check_tag(findings: Findings, before: TableState, tag: Tag) -> None:
    if not is_retained(before, tag.version):
        findings.add(
            Invariant.TAG,
            f"version {before.version + 1} tags version {tag.version} as {tag.name!r}, which is not retained",
            version=before.version + 1,
        )


def check_reach(findings: Findings, newest: TableState, begin: int) -> None:
    """Checks that all retained versions can be built from the entries that are left."""
    oldest = min(first_retained(newest), *(tag.version for tag in tags_of(newest).values()), newest.version)
    if oldest < begin:
        findings.add(
            Invariant.VERSION_GAP,
            f"version {oldest} is retained, but the entries before version {begin} are gone",
            version=begin,
        )


def check_retained_files(store: FileStore, files: Collection[FileInfo], newest: TableState, findings: Findings) -> None:
    """Checks that files of retained or tagged versions exist; other checks read those of the newest version."""
    try:
        lives = lifetimes_until(store.delta_log, newest.version)
    except BROKEN:
        return  # the check of the Delta log reports it
    retained = Retained(first_retained(newest), tuple(sorted(tag.version for tag in tags_of(newest).values())))
    prefix = layout.join(store.location, "")
    there = {info.path.removeprefix(prefix) for info in files}
    for path in sorted(lives.needed(retained, newest) - there):
        findings.add(Invariant.RETAINED_FILE, f"{path} is missing, and a retained version needs it", path)

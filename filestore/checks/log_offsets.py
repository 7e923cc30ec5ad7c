"""Checks a commit's log transactions and the log's offsets (FORMAT.md section 12.1)."""

from __future__ import annotations

from collections.abc import Iterable

from filestore.checks.report import Findings, Invariant
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.model.log_range import LogTransaction

__all__ = ["check_log"]


def check_log(findings: Findings, before: TableState | None, after: TableState, entry: Commit) -> None:
    """Checks the transactions that a commit names, lists as open, takes off the list or republishes."""
    known = {t.id for t in before.log.open} if before is not None else set()
    snapshot = entry.snapshot()
    named = {t.id: t for t in snapshot.transactions}
    again = {t.id: t for t in snapshot.republished.values() if t is not None}
    still_open = {t.id for t in after.log.open}
    decided = {t.id for t in named.values() if any(p.end > after.log.repaired.get(p.bucket, -1) for p in t.ranges)}
    if missing := sorted(decided - still_open):
        findings.add(
            Invariant.OPEN_TRANSACTION,
            f"version {entry.version} decides log transaction {missing[0]!r} and does not list it as open",
            version=entry.version,
        )
    if lost := sorted(set(snapshot.republished) - known):
        findings.add(
            Invariant.OPEN_TRANSACTION,
            f"version {entry.version} republishes log transaction {lost[0]!r}, which was not open",
            version=entry.version,
        )
    if missing := sorted(set(again) - still_open):
        findings.add(
            Invariant.OPEN_TRANSACTION,
            f"version {entry.version} republishes {missing[0]!r} and does not list it as open",
            version=entry.version,
        )
    if unknown := sorted(still_open - known - set(named) - set(again)):
        findings.add(
            Invariant.OPEN_TRANSACTION,
            f"version {entry.version} lists log transaction {unknown[0]!r} as open, which no snapshot decided",
            version=entry.version,
        )
    _check_offsets(findings, before, after, entry, (*named.values(), *again.values()))


def _check_offsets(
    findings: Findings,
    before: TableState | None,
    after: TableState,
    entry: Commit,
    transactions: Iterable[LogTransaction],
) -> None:
    for transaction in transactions:
        for part in transaction.ranges:
            if not 0 <= part.start <= part.end <= after.log.offsets.get(part.bucket, -1):
                findings.add(
                    Invariant.OFFSET_ORDER,
                    f"version {entry.version} names records {part.start} to {part.end} of bucket {part.bucket}, but "
                    f"covers {after.log.offsets.get(part.bucket)}",
                    version=entry.version,
                )
    if before is None or entry.begins_log:
        return
    if after.log.identity != before.log.identity:
        findings.add(
            Invariant.OFFSET_ORDER,
            f"version {entry.version} has the offsets of another log, and does not say that a new one begins",
            version=entry.version,
        )
    for bucket, offset in before.log.repaired.items():
        if after.log.repaired.get(bucket, -1) < offset:
            findings.add(
                Invariant.OFFSET_ORDER,
                f"version {entry.version} lowers the repaired offset of bucket {bucket} from {offset} to "
                f"{after.log.repaired.get(bucket)}",
                version=entry.version,
            )

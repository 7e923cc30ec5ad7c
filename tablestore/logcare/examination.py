"""Checks that a table's log has what the table's versions say, and what a write needs (FORMAT.md section 12.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from filestore.checks.report import Finding, Invariant
from filestore.delta.state import TableState
from filestore.errors import Corrupt, TableStoreError, Unavailable
from filestore.model.log_range import LogTransaction
from filestore.retention.rules import is_retained
from filestore.table import FileStore
from filestore.unreadable import is_unreadable
from log.table.store import LogStore
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from managed_table.own_log import OwnRecords, require_own_log

__all__ = ["examine_log"]

_OF_THIS_PROCESS = ("no-permission", "read-only", "too-many-open-files", "log-not-authorized")
"""The codes of errors that another user, another host or another process need not have."""


def examine_log(table: OpenedTable) -> list[Finding]:
    """Returns what is damaged, what makes writes fail, and where versions and the log's transactions disagree.

    Our readers of a version whose transaction the log has aborted may fail (`log-gap`), and other consumers never see
    its records, unless they were published again.

    Raises:
        Unavailable: the storage of the table's files does not answer.
    """
    try:
        state = table.filestore.state()
        config = table.log_config(state.definition)
        named = [] if config is None else _named(table.filestore, state)
    except Unavailable:
        raise  # it is the table's files that cannot be read: whoever cannot read them calls nothing healthy
    except TableStoreError as error:
        return [_refusal(error, of_a_server=True)]
    if config is None:
        return []
    found: list[Finding] = []
    committed: Mapping[int, int] = {}
    try:
        with open_log(config, table.ambient) as log:
            require_own_log(log, state)
            found += [Finding(Invariant.LOG_DAMAGED, what) for what in log.damages(state.log.offsets)]
            log.check_writable()
            table.filestore.leases.abandoned()  # each write looks for them
            found += _aborted(log, named)
            committed = _committed_behind(log, state, found)
    except Corrupt as error:
        return found or [Finding(Invariant.LOG_DAMAGED, error.message)]
    except TableStoreError as error:
        return [*found, _refusal(error, of_a_server=config.system != "embedded")]
    return [*found, *_ahead(committed, state, table.filestore.state())] if committed else found


def _aborted(log: LogStore, named: Sequence[tuple[LogTransaction, int]]) -> list[Finding]:
    """Finds versions whose transactions the log has aborted."""
    versions = {transaction.id: version for transaction, version in named}
    return [
        Finding(
            Invariant.ABORTED_TRANSACTION,
            f"version {versions[id_]} names log transaction {id_}, which the log has aborted: other consumers never "
            "get its records. `Table.recover`, a writer or a compactor publishes it again if the newest version lists "
            "it as open",
        )
        for id_ in log.aborted([transaction for transaction, _ in named])
    ]


def _committed_behind(log: LogStore, state: TableState, found: list[Finding]) -> Mapping[int, int]:
    """Returns where the log has committed records that a version does not cover; if it cannot be asked, it notes that.

    It reads records, which takes a right that no write needs, and retention may take them meanwhile.
    """
    try:
        return log.committed_behind({b: state.log.offsets.get(b, 0) for b in range(state.definition.buckets)})
    except TableStoreError as error:
        what = f"the log was not asked for committed records that no version covers: {error.message}"
        found.append(Finding(Invariant.LOG_SILENT, what))
        return {}


def _ahead(committed: Mapping[int, int], state: TableState, newest: TableState) -> list[Finding]:
    """Finds records that a version has committed whose entry is lost: the newest version does not cover them.

    A writer ends its transaction behind its entry. So the entry of every committed record can be read by now.

    Args:
        committed: By bucket the first committed record that `state` does not cover.
        state: The newest version before the log was asked.
        newest: The newest version afterwards.
    """
    lost = {b: at for b, at in committed.items() if at >= newest.log.offsets.get(b, 0)}
    if not lost or newest.log.begins != state.log.begins:
        return []  # a log that began meanwhile has other offsets
    bucket, at = min(lost.items())
    return [
        Finding(
            Invariant.LOG_AHEAD,
            f"bucket {bucket} of the log has a committed record at offset {at}, and the newest version, "
            f"{newest.version}, covers it up to {newest.log.offsets.get(bucket, 0)}: the entry of version "
            f"{newest.version + 1} is lost, or the table's files were restored from a backup that is older than the "
            "log. Restore the entry before anybody writes, and remove no orphans until then, since its files are among "
            "them. Without a backup of it write its rows again: consumers of the log have them",
        )
    ]


def _refusal(error: TableStoreError, *, of_a_server: bool) -> Finding:
    """Returns what the log's error means: writes fail until somebody acts, or this moment or this user got no answer.

    A server may answer again by itself, another process may be done with a file, and another user may have the rights.
    An embedded log's other errors stay: a full disk or a folder in the place of a file waits for somebody.
    """
    answers_later = isinstance(error, Unavailable) and (of_a_server or error.code == "log-unavailable")
    if answers_later or error.code in _OF_THIS_PROCESS:
        return Finding(Invariant.LOG_SILENT, f"the log was not asked for the transactions of versions: {error.message}")
    return Finding(Invariant.LOG_UNUSABLE, f"writes fail ({error.code}): {error.message}")


def _named(filestore: FileStore, state: TableState) -> list[tuple[LogTransaction, int]]:
    """Lists the transactions of all versions that can be read, but for those that were published again."""
    named: list[tuple[LogTransaction, int]] = []
    again: set[str] = set()
    own = OwnRecords(state, filestore.location)
    for version in range(state.version, -1, -1):
        if not (own.has(version) and is_retained(state, version)):
            continue  # its records were in a log that was lost
        try:
            snapshot = filestore.snapshot(version)
        except TableStoreError as error:
            if is_unreadable(error) or error.code in ("no-such-version", "snapshot-expired"):
                continue  # the history has reported it, or it has expired since
            raise
        again |= snapshot.republished.keys()
        named += [(transaction, snapshot.version) for transaction in snapshot.transactions]
        named += [(found, snapshot.version) for found in snapshot.republished.values() if found is not None]
    return [(transaction, version) for transaction, version in named if transaction.id not in again]

"""Begins a new log at a table's newest version, after its log was lost (log/table/PROTOCOL.md section 8.4)."""

from __future__ import annotations

from filestore.commit.proposal import LogChanges, NewLog, Proposal
from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound
from filestore.model.snapshot import Operation, Snapshot
from log.table.store import LogStore
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from managed_table.own_log import require_own_log

__all__ = ["begin_new_log"]


def begin_new_log(table: OpenedTable) -> Snapshot | None:
    """Makes a log for a table whose log is gone, damaged, behind it or another one, and commits that it begins there.

    The log is made first. So a crash leaves a log that is not the table's yet, and the next call takes that one or
    makes another. The version has the table's definition anew, which every commit that was prepared before it takes for
    a change: no writer that used the former log can commit.

    Rows and versions stay. Readers of changes that have read the newest version go on, in other processes, too; others
    get ``log-gap``, and begin again with ``scan="full"``, or go on with ``on_log_gap="rescan"``.

    Returns:
        The version with which the new log begins; None if the table has its log.

    Raises:
        Unsupported: ``no-log``; and what `LogStore.create` raises.
        AlreadyExists, InvalidRequest: ``log-exists``, ``log-topic``: another topic has the name, and does not fit.
        Unavailable: log or storage did not answer, or the database that holds the table's commits: try again.
        Conflict: ``too-many-races``.
    """
    store = table.filestore
    store.decided()  # a version that is claimed in a database was written with the former log: it comes first

    def propose(base: TableState) -> Proposal | None:
        with open_log(table.required_log(base.definition), table.ambient) as log:
            problem = _problem(log, base)
            if problem is None:
                return None
            if problem == "log-replaced":
                log.create()  # another one is there, and has to fit
            else:
                log.create_anew()
                if _problem(log, base) is None:  # one broker's answer was wrong, or somebody has restored it
                    return None
            changes = LogChanges(new_log=NewLog(log.identity(), log.end_offsets()))
        note = f"a new log begins: records of version {base.version} and of earlier ones were in another"
        commit_id = table.ambient.new_id()
        return Proposal(
            Operation.ALTER, commit_id, base.version, log=changes, definition=base.definition, notes=(note,)
        )

    committed = store.commit_metadata(propose)
    return None if committed is None else committed.snapshot


def _problem(log: LogStore, state: TableState) -> str | None:
    """Returns why a log cannot be the table's any more: the code of the error; None if it is the table's.

    An error that may pass, or of a missing right, is raised.
    """
    try:
        log.check_writable()
        require_own_log(log, state)
    except (NotFound, Corrupt) as error:
        return error.code
    return None

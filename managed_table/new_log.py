"""Begins a new log at a table's newest version, after its log was lost (log/table/PROTOCOL.md section 8.4)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from filestore.commit.proposal import LogChanges, NewLog, Proposal
from filestore.delta.state import TableState
from filestore.errors import Corrupt, InvalidRequest, NotFound, TableStoreError
from filestore.model.changes import SetOption
from filestore.model.evolution import evolve
from filestore.model.snapshot import Operation, Snapshot
from log.table.store import LogStore
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from managed_table.own_log import require_own_log

__all__ = ["begin_new_log"]

logger = logging.getLogger(__name__)


def begin_new_log(table: OpenedTable, options: Mapping[str, str] | None = None) -> Snapshot | None:
    """Makes a log for a table whose log is gone, damaged, behind it or another one, and commits that it begins there.

    The log is made first. So a crash leaves a log that is not the table's yet, and the next call takes that one or
    makes another. The version has the table's definition anew, which every commit that was prepared before it takes for
    a change: no writer that used the former log can commit.

    Rows and versions stay. Readers of changes that have read the newest version go on, in other processes, too; others
    get ``log-gap``, and begin again with ``scan="full"``, or go on with ``on_log_gap="rescan"``.

    Args:
        table: The table.
        options: Options ``log.*`` that change with it: where the new log is, if its brokers are others.

    Returns:
        The version with which the new log begins; None if the table has its log.

    Raises:
        Unsupported: ``no-log``; and what `LogStore.create` raises.
        AlreadyExists, InvalidRequest: ``log-exists``, ``log-topic``: another topic has the name, and does not fit.
        Unavailable: log or storage did not answer, or the database that holds the table's commits: try again.
        InvalidRequest: ``log-not-lost``: the options change, and the table has its log; ``not-of-the-log``; an option
            that is fixed or wrong, or with which no log can be reached.
        Conflict: ``too-many-races``.
    """
    changes = _changes(options or {})
    store = table.filestore
    store.decided()  # a version that is claimed in a database was written with the former log: it comes first

    def propose(base: TableState) -> Proposal | None:
        definition = evolve(base.definition, changes, table.ambient.new_id).definition if changes else base.definition
        moves = definition != base.definition
        if moves:
            _require_lost(table, base)
        with open_log(table.required_log(definition), table.ambient) as log:
            if not _is_made(log, base):
                if moves:
                    raise _not_lost(base, "they lead to the log that the table has")
                return None
            changes_log = LogChanges(new_log=NewLog(log.identity(), log.end_offsets()))
        note = f"a new log begins: records of version {base.version} and of earlier ones were in another"
        commit_id = table.ambient.new_id()
        return Proposal(Operation.ALTER, commit_id, base.version, log=changes_log, definition=definition, notes=(note,))

    committed = store.commit_metadata(propose)
    return None if committed is None else committed.snapshot


def _changes(options: Mapping[str, str]) -> list[SetOption]:
    if wrong := [name for name in options if not name.startswith("log.")]:
        raise InvalidRequest(
            f"{wrong[0]!r} is no option of the log: a new log takes those that begin with 'log.'; change others with "
            "ALTER TABLE",
            code="not-of-the-log",
        )
    return [SetOption(name, value) for name, value in options.items()]


def _require_lost(table: OpenedTable, base: TableState) -> None:
    """Refuses other options if the former ones still lead to the table's log. One that does not answer is lost, too.

    Whoever gives the options has decided that.
    """
    try:
        with open_log(table.required_log(base.definition), table.ambient) as log:
            found = _problem(log, base)
    except TableStoreError as error:
        logger.warning("the former log of %s was not asked: %s", table.identity.identifier, error.message)
        return
    if found is None:
        raise _not_lost(base, "the options that it has lead to its log")


def _not_lost(base: TableState, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the log of table {base.table_id} is not lost ({why}): to reach it in another way, change the options with "
        "ALTER TABLE … SET TBLPROPERTIES",
        code="log-not-lost",
    )


def _is_made(log: LogStore, base: TableState) -> bool:
    """Makes the log; returns False if it is the table's already."""
    problem = _problem(log, base)
    if problem == "log-replaced":
        log.create()  # another one is there, and has to fit
    elif problem is not None:
        log.create_anew()
        problem = _problem(log, base)  # one broker's answer was wrong, or somebody has restored it
    return problem is not None


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

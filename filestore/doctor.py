"""The doctor: checks every invariant of FORMAT.md section 12 on the stored bytes, and changes nothing.

It keeps metadata in memory and streams rows: one row group of a file, or the keys of one row group of each file of a
slot.
"""

from __future__ import annotations

from collections.abc import Mapping

from filestore.checks.contents import check_file
from filestore.checks.history import read_history
from filestore.checks.leftovers import check_leftovers
from filestore.checks.pending import check_run, check_tombstones
from filestore.checks.report import Finding, Findings, Invariant, Report, Severity
from filestore.checks.retention import check_retained_files
from filestore.checks.uniqueness import check_unique
from filestore.commit.held import publish_where_held
from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound
from filestore.model.files import DataFile
from filestore.model.schema import Schema
from filestore.progress import Counter, Observe
from filestore.secrets import literal_secrets
from filestore.table import FileStore

__all__ = ["Finding", "Invariant", "Report", "Severity", "examine"]

_ORDER = (Severity.PROBLEM, Severity.ORPHAN, Severity.NOTE)


def examine(store: FileStore, version: int | None = None, observe: Observe | None = None) -> Report:
    """Checks the whole history, and the files of one version.

    Args:
        store: The table.
        version: The version whose files are read; the newest if None.
        observe: Takes how many of these files were read.

    Raises:
        NotFound: there is no table, or no such version.
        Unavailable: a store does not answer, or a database that holds the commits, so that versions may be missing.
    """
    publish_where_held(store.storage)
    versions = store.delta_log.versions()
    if not versions:
        raise NotFound(f"there is no table at {store.location}", code="no-table")
    if version is not None and version not in versions:
        raise NotFound(
            f"{store.name} has no version {version}; it has versions {versions[0]} to {versions[-1]}",
            code="no-such-version",
        )
    findings = Findings()
    history = read_history(store.delta_log, version, findings, store.table_files)
    if history.state is not None:
        _examine_files(store, history.state, history.schemas, findings, observe)
    if history.newest is not None:
        _note_secrets(history.newest, findings)
    try:
        files = list(store.storage.walk(store.location))
    except Corrupt as error:
        findings.add(Invariant.FILE_UNREADABLE, f"files that may be left over were not looked for: {error.message}")
        return _report(store, history.state, findings)
    if history.newest is not None:
        check_retained_files(store, files, history.newest, findings)
    if not history.unread:  # otherwise files of that version would be called orphans
        check_leftovers(store, files, history.referenced, history.newest, findings)
    return _report(store, history.state, findings)


def _note_secrets(newest: TableState, findings: Findings) -> None:
    if literal := literal_secrets(newest.definition.options.as_dict()):
        findings.add(
            Invariant.LITERAL_SECRET,
            f"whoever may read the table's metadata may read the values of {', '.join(literal)}: change the secrets at "
            "the servers, and set these options to references, such as ${env:TABLESTORE_SECRET_KAFKA}; older "
            "versions keep the former values until they expire",
        )


def _examine_files(
    store: FileStore,
    state: TableState,
    schemas: Mapping[str, Schema],
    findings: Findings,
    observe: Observe | None,
) -> None:
    table = store.table_files(state)
    checking = Counter(observe, "checking", "files", len(state.files))

    def is_readable(file: DataFile) -> bool:
        readable = check_file(table, file, findings, schemas.get(file.path))
        checking.add(1)
        return readable

    for slot, some in state.files.items():
        readable = [file for file in some.values() if is_readable(file)]
        if state.definition.primary_key and len(readable) > 1:
            check_unique(table, slot, readable, findings)
    _note_files_without_checksums(state, findings)
    for run in state.pending:
        check_run(table, run, findings, schemas.get(run.path))
    for tombstones in state.tombstones:
        check_tombstones(table, tombstones, findings)


def _note_files_without_checksums(state: TableState, findings: Findings) -> None:
    """Counts the files in which damage may not be noticed."""
    without = sorted(file.path for file in state.files if not file.has_checksums)
    if without:
        findings.add(
            Invariant.NO_CHECKSUMS,
            f"{len(without)} of {len(state.files)} data files have no checksums, since an earlier version wrote them, "
            f"such as {without[0]}: damaged values in them may not be noticed. `tablestore compact --full` writes them "
            "anew",
        )


def _report(store: FileStore, state: TableState | None, findings: Findings) -> Report:
    ordered = sorted(findings, key=lambda f: _ORDER.index(f.severity))
    return Report(
        location=store.location,
        version=-1 if state is None else state.version,
        files=0 if state is None else len(state.files),
        rows=0 if state is None else state.totals.live_rows,
        findings=tuple(ordered),
    )

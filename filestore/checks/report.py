"""Findings, and the codes of all invariants. FORMAT.md section 12 defines them; a test compares both lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

__all__ = ["Finding", "Findings", "Invariant", "Report", "Severity", "cause_of"]


class Severity(StrEnum):
    """The severity of a finding: only a problem breaks an invariant."""

    PROBLEM = "problem"
    ORPHAN = "orphan"
    NOTE = "note"


class Invariant(StrEnum):
    """The names of the invariants, in the order of FORMAT.md."""

    VERSION_GAP = "version-gap"
    LOG_ENTRY = "log-entry"
    TIMESTAMP_ORDER = "timestamp-order"
    PROTOCOL = "protocol"
    TABLE_ID = "table-id"
    COLUMN_ID = "column-id"
    COMMIT_ID = "commit-id"
    FILE_ACTION = "file-action"
    DATA_CHANGE = "data-change"
    REPLACED_PARTITION = "replaced-partition"
    OFFSET_ORDER = "offset-order"
    OPEN_TRANSACTION = "open-transaction"
    APP_VERSION_ORDER = "app-version-order"
    APP_VERSION_TWICE = "app-version-twice"
    CHECKPOINT = "checkpoint"
    RETENTION = "retention"
    TAG = "tag"
    FILE_MISSING = "file-missing"
    FILE_SIZE = "file-size"
    FILE_UNREADABLE = "file-unreadable"
    CHECKSUM = "checksum"
    FILE_SCHEMA = "file-schema"
    ROW_COUNT = "row-count"
    ROW_ORDER = "row-order"
    BUCKET = "bucket"
    PARTITION = "partition"
    NOT_NULL = "not-null"
    TEXT = "text"
    KEY_BOUNDS = "key-bounds"
    STATISTICS = "statistics"
    BLOOM_FILTER = "bloom-filter"
    HIDDEN_VALUE = "hidden-value"
    VECTOR = "vector"
    RETAINED_FILE = "retained-file"
    UNIQUE_KEY = "unique-key"
    PENDING_RUN = "pending-run"
    TOMBSTONES = "tombstones"
    DEAD_FILE = "dead-file"
    ORPHAN = "orphan"
    FOREIGN_FILE = "foreign-file"
    NO_CHECKSUMS = "no-checksums"
    LITERAL_SECRET = "literal-secret"
    CHANGE_FEED = "change-feed"
    CHANGE_FILE = "change-file"
    CHANGE_COUNT = "change-count"
    CHANGE_ROW = "change-row"
    FENCED_COMMIT = "fenced-commit"
    ABORTED_TRANSACTION = "aborted-transaction"
    LOG_AHEAD = "log-ahead"
    LOG_DAMAGED = "log-damaged"
    LOG_UNUSABLE = "log-unusable"
    LOG_SILENT = "log-silent"
    VIEW_RESULT = "view-result"
    VIEW_UNCHECKED = "view-unchecked"


_SEVERITIES = {
    Invariant.ORPHAN: Severity.ORPHAN,
    Invariant.DEAD_FILE: Severity.NOTE,
    Invariant.FOREIGN_FILE: Severity.NOTE,
    Invariant.NO_CHECKSUMS: Severity.NOTE,
    Invariant.LITERAL_SECRET: Severity.NOTE,
    Invariant.LOG_SILENT: Severity.NOTE,
    Invariant.VIEW_UNCHECKED: Severity.NOTE,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation or a note that the doctor found.

    Attributes:
        code: The invariant, as FORMAT.md names it.
        message: What was found, with paths and values.
        path: The file, relative to the table, if the finding is about one.
    """

    code: Invariant
    message: str
    path: str | None = None

    @property
    def severity(self) -> Severity:
        """The severity that its code has."""
        return _SEVERITIES.get(self.code, Severity.PROBLEM)


@dataclass(slots=True)
class Findings:
    """Collects findings: only the first for each code and file, since a broken file breaks in every row."""

    _seen: dict[tuple[Invariant, str | None, int | None], Finding] = field(default_factory=dict)

    def add(self, code: Invariant, message: str, path: str | None = None, version: int | None = None) -> None:
        """Adds a finding about a file or a version."""
        self._seen.setdefault((code, path, version), Finding(code, message, path))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._seen.values())


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an examination.

    Attributes:
        location: The table.
        version: The version whose files were read; -1 if none could be.
        files: The number of live data files of that version.
        rows: The number of live rows by the Delta log.
        findings: The problems first, then orphans, then notes.
    """

    location: str
    version: int
    files: int
    rows: int
    findings: tuple[Finding, ...]

    def with_more(self, findings: Iterable[Finding]) -> Report:
        """Returns the report with findings about something else that belongs to the table."""
        order = (Severity.PROBLEM, Severity.ORPHAN, Severity.NOTE)
        return replace(self, findings=tuple(sorted((*self.findings, *findings), key=lambda f: order.index(f.severity))))

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that break an invariant."""
        return tuple(f for f in self.findings if f.severity is Severity.PROBLEM)

    @property
    def orphans(self) -> tuple[Finding, ...]:
        """Files that no version names."""
        return tuple(f for f in self.findings if f.severity is Severity.ORPHAN)

    @property
    def healthy(self) -> bool:
        """Returns whether every invariant holds."""
        return not self.problems


def cause_of(error: Exception) -> BaseException:
    """Returns what Parquet's reader said of a damaged file: a finding says itself what to do."""
    return error.__cause__ or error

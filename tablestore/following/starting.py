"""Where a reader of changes begins: a version, and whether its rows come first. One rule for all doors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from filestore.errors import InvalidRequest
from filestore.life.retention import tag_of
from filestore.model.table_options import TableOptions
from filestore.table import FileStore
from tablestore.moments import milliseconds

__all__ = ["Asked", "Start", "start_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCANS = ("full", "latest", "from-timestamp")


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a table's history.

    Attributes:
        version: Changes after this version come.
        rows: Whether its rows come first.
    """

    version: int
    rows: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader said of where to begin.

    Attributes:
        scan: ``full``, ``latest``, ``from-timestamp``, or None for what the rest says.
        timestamp: The state at that time.
        version: That version.
        tag: The version with that tag.
    """

    scan: str | None = None
    timestamp: datetime | None = None
    version: int | None = None
    tag: str | None = None

    @property
    def moments(self) -> int:
        """How many of timestamp, version and tag were given."""
        return sum(given is not None for given in (self.timestamp, self.version, self.tag))

    def check(self) -> None:
        """Refuses what leaves open where to begin.

        Raises:
            InvalidRequest: ``bad-scan-mode``; ``bad-time-travel``: more than one of timestamp, version and tag.
        """
        if self.moments > 1:
            raise InvalidRequest("give only one of timestamp, version and tag", code="bad-time-travel")
        if self.scan is None or self.scan == "full":
            return
        if self.scan not in _SCANS:
            problem = "is not known"
        elif self.scan == "from-timestamp" and self.timestamp is None:
            problem = "lacks its timestamp"
        elif self.scan == "latest" and self.moments:
            problem = "begins now, and takes no timestamp, version or tag"
        else:
            return
        raise InvalidRequest(
            f"scan={self.scan!r} {problem}: use 'full', 'latest', or 'from-timestamp' with a timestamp; a version or "
            "tag needs no scan",
            code="bad-scan-mode",
        )

    def resolved(self, options: TableOptions) -> Asked:
        """What is meant: where nothing was said, what the table's ``log.scan`` says."""
        if self.scan is not None:
            return self
        if self.moments:
            return replace(self, scan="from-timestamp") if self.timestamp is not None else self
        millis = options["log.scan.timestamp-millis"]
        timestamp = None if millis is None else _EPOCH + timedelta(milliseconds=millis)
        return replace(self, scan=options["log.scan"], timestamp=timestamp)


def start_of(files: FileStore, asked: Asked) -> Start:
    """The version that a reader means.

    Args:
        files: The table.
        asked: ``full`` alone: all rows of the newest version and then every change; with a timestamp, version or tag
            the rows of that version. ``latest``: later changes only. ``from-timestamp``, a version or a tag: the
            changes after it; of a time before the table's creation all changes.

    Raises:
        InvalidRequest: ``bad-scan-mode``, ``bad-time-travel``.
        NotFound: there is no such version or tag, or it has expired.
    """
    asked.check()
    state = files.state()
    meant = asked.resolved(state.definition.options)
    rows = meant.scan == "full"
    if meant.version is not None:
        version = meant.version
    elif meant.tag is not None:
        version = tag_of(state, meant.tag).version
    elif meant.timestamp is None or meant.scan == "latest":
        version = state.version
    elif rows:
        version = files.version_at(milliseconds(meant.timestamp))
    else:
        version = files.version_to_follow(milliseconds(meant.timestamp))
    return Start(version, rows)

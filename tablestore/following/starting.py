"""Determines where a reader of changes begins: at which version, and whether with its rows. All readers use it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, get_args

from filestore.errors import InvalidRequest
from filestore.model.table_options import TableOptions
from filestore.retention.rules import tag_of
from filestore.table import FileStore
from tablestore.incoming.moments import milliseconds, milliseconds_from

__all__ = ["ScanFrom", "Start", "StartOptions", "start_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ScanFrom: TypeAlias = Literal["full", "latest", "from-timestamp"]
"""The places to begin at as users write them."""
_SCANS: tuple[str, ...] = get_args(ScanFrom)


@dataclass(frozen=True, slots=True)
class Start:
    """A position in a table's history.

    Attributes:
        version: The reader gets the changes after this version.
        rows: Whether it gets the rows of this version first.
    """

    version: int
    rows: bool


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options of a reader that say where to begin.

    Attributes:
        scan: ``full``, ``latest``, ``from-timestamp``, or None, which depends on the other options.
        timestamp: Begin with what was committed at that time; with `full` with the state at that time.
        version: Begin with that version.
        tag: Begin with the version of that tag.
    """

    scan: str | None = None
    timestamp: datetime | None = None
    version: int | None = None
    tag: str | None = None

    @property
    def moments(self) -> int:
        """The number of those of timestamp, version and tag that are set."""
        return sum(given is not None for given in (self.timestamp, self.version, self.tag))

    def check(self) -> None:
        """Refuses options that do not determine where to begin.

        Raises:
            InvalidRequest: ``bad-scan-mode``; ``bad-time-travel``: more than one of timestamp, version and tag.
        """
        if self.moments > 1:
            raise InvalidRequest("pass only one of timestamp, version and tag", code="bad-time-travel")
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

    def resolved(self, options: TableOptions) -> StartOptions:
        """Adds defaults: without any of these options the table's ``log.scan`` applies."""
        if self.scan is not None:
            return self
        if self.moments:
            return replace(self, scan="from-timestamp") if self.timestamp is not None else self
        millis = options["log.scan.timestamp-millis"]
        timestamp = None if millis is None else _EPOCH + timedelta(milliseconds=millis)
        return replace(self, scan=options["log.scan"], timestamp=timestamp)


def start_of(filestore: FileStore, asked: StartOptions) -> Start:
    """Determines the version at which a reader begins.

    Args:
        filestore: The table.
        asked: ``full`` alone: all rows of the newest version and then every change; with a timestamp, version or tag
            the rows of that version. ``latest``: only later changes. ``from-timestamp``: what was committed at that
            time or later; for a time before the table's creation all changes. A version or a tag: the changes after it.

    Raises:
        InvalidRequest: ``bad-scan-mode``, ``bad-time-travel``.
        NotFound: there is no such version or tag, or it has expired.
    """
    asked.check()
    state = filestore.state()
    meant = asked.resolved(state.definition.options)
    rows = meant.scan == "full"
    if meant.version is not None:
        version = meant.version
    elif meant.tag is not None:
        version = tag_of(state, meant.tag).version
    elif meant.timestamp is None or meant.scan == "latest":
        version = state.version
    elif rows:
        version = filestore.version_at(milliseconds(meant.timestamp))
    else:
        version = filestore.version_before(milliseconds_from(meant.timestamp))
    return Start(version, rows)

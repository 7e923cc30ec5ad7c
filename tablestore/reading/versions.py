"""`Versioned`: the versions of a table by number, time and tag."""

from __future__ import annotations

import sys
from datetime import datetime

from filestore.arguments import checks_arguments
from filestore.errors import InvalidRequest
from filestore.life.tags import create_tag, delete_tag
from filestore.model.snapshot import Snapshot
from filestore.retention.rules import Tag, tag_of, tags_of
from filestore.table import FileStore
from tablestore.incoming.moments import milliseconds

__all__ = ["Versioned"]


@checks_arguments()
class Versioned:
    """The part of `tablestore.Table` that is about its versions and their tags.

    Attributes:
        filestore: The table.
    """

    filestore: FileStore

    @property
    def version(self) -> int:
        """The newest version."""
        return self.filestore.state().version

    def version_at(self, timestamp: datetime) -> int:
        """Returns the newest version committed at or before that time; `NotFound` if the table is younger."""
        return self.filestore.version_at(milliseconds(timestamp))

    def version_of(self, version: int | None, timestamp: datetime | None, tag: str | None) -> int | None:
        """Returns the version that one of the arguments names; None if all are None."""
        if sum(given is not None for given in (version, timestamp, tag)) > 1:
            raise InvalidRequest("give only one of version, timestamp and tag", code="bad-time-travel")
        if tag is not None:
            return tag_of(self.filestore.state(), tag).version
        return version if timestamp is None else self.version_at(timestamp)

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """Lists the table's snapshots, newest first; at most `limit`, if it is given.

        Raises:
            InvalidRequest: ``bad-limit``: a limit below one.
        """
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit={limit} is not above zero: leave it out for all versions", code="bad-limit")
        return self.filestore.snapshots(None if limit is None else min(limit, sys.maxsize))

    def create_tag(self, name: str, version: int | None = None, *, timestamp: datetime | None = None) -> Tag:
        """Names a version (the newest one, if neither is given), which does not expire before the tag is deleted.

        Raises:
            InvalidRequest: ``bad-tag-name``.
            AlreadyExists: ``tag-exists``.
            NotFound: ``no-such-version``, ``snapshot-expired``.
        """
        return create_tag(self.filestore, name, self.version_of(version, timestamp, None))

    def delete_tag(self, name: str) -> None:
        """Removes a tag, so that its version may expire. `NotFound` (``no-such-tag``)."""
        delete_tag(self.filestore, name)

    def tags(self) -> list[Tag]:
        """Lists all tags, by name."""
        return list(tags_of(self.filestore.state()).values())

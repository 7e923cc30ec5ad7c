"""Decides which versions can be read: those from the first retained one on, tagged ones, and held ones.

The first retained version and the tags are in metadata domains of the Delta log (FORMAT.md section 14); what running
readers hold is in the files of `filestore.life.consumers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from filestore.decoding import well_formed
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest, NotFound

__all__ = [
    "RETENTION_DOMAIN",
    "TAG_DOMAIN",
    "Tag",
    "check_tag_name",
    "expired",
    "first_retained",
    "is_retained",
    "tag_of",
    "tags_of",
]

RETENTION_DOMAIN = "tablestore.retention"
TAG_DOMAIN = "tablestore.tag."

_TAG_NAME = re.compile(r"(?=.*[^0-9])[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version, which stays readable as long as the tag exists.

    Attributes:
        name: Its name.
        version: The version.
        timestamp_ms: When that version was committed, in milliseconds since 1970 UTC.
        created_ms: When the tag was created.
        automatic: Whether maintenance created it, and may remove it when there are too many.
    """

    name: str
    version: int
    timestamp_ms: int
    created_ms: int
    automatic: bool = False

    @property
    def domain(self) -> str:
        """The metadata domain that holds it."""
        return f"{TAG_DOMAIN}{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Returns the domain's configuration."""
        return {
            "version": self.version,
            "timestamp": self.timestamp_ms,
            "created": self.created_ms,
            "automatic": self.automatic,
        }

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any]) -> Tag:
        """Reads what `to_json` returned."""
        return cls(name, value["version"], value["timestamp"], value["created"], value["automatic"])


def check_tag_name(name: str) -> None:
    """Refuses a name that a shell or a path cannot contain, or that looks like a version number: `InvalidRequest`."""
    if _TAG_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name!r} is no name for a tag: take 1 to 100 letters, digits, '_', '.' and '-', not only digits, and a "
            "letter or digit first",
            code="bad-tag-name",
        )


def tags_of(state: TableState) -> dict[str, Tag]:
    """Returns the tags of a version's state, by name."""
    found = {d.removeprefix(TAG_DOMAIN): text for d, text in state.domains.items() if d.startswith(TAG_DOMAIN)}
    return {name: _tag(name, text) for name, text in sorted(found.items())}


def tag_of(state: TableState, name: str) -> Tag:
    """Returns one tag. `NotFound` (``no-such-tag``) says which ones exist."""
    text = state.domains.get(f"{TAG_DOMAIN}{name}")
    if text is None:
        have = ", ".join(tags_of(state)) or "none"
        raise NotFound(f"there is no tag {name!r}; there are: {have}", code="no-such-tag")
    return _tag(name, text)


def _tag(name: str, text: str) -> Tag:
    with well_formed("what the Delta log says of the table's tags", code="bad-log-entry"):
        return Tag.from_json(name, json.loads(text))


def first_retained(state: TableState) -> int:
    """Returns the first version from which on all are retained."""
    with well_formed("what the Delta log says of the retained versions", code="bad-log-entry"):
        return int(json.loads(state.domains.get(RETENTION_DOMAIN, "{}")).get("first", 0))


def is_retained(state: TableState, version: int) -> bool:
    """Returns whether a version can be read by what the Delta log says; consumers may hold others."""
    return first_retained(state) <= version <= state.version or any(
        t.version == version for t in tags_of(state).values()
    )


def expired(name: str, version: int, state: TableState) -> NotFound:
    """Returns the error of a reader whose version has expired."""
    tagged = sorted({tag.version for tag in tags_of(state).values()} - {version})
    also = f" and the tagged ones {', '.join(map(str, tagged))}" if tagged else ""
    return NotFound(
        f"version {version} of {name} has expired; there are versions {first_retained(state)} to "
        f"{state.version}{also}: read one of them, and hold versions that you need for long with a tag or a consumer",
        code="snapshot-expired",
    )

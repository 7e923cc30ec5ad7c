"""The offset of a stream of changes: the JSON object that Spark keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tablestore.following.admission import Place

__all__ = ["Offset"]


@dataclass(frozen=True, slots=True)
class Offset:
    """The stream has read `files` parts of version `begin`, all changes up to `version`, and `units` of the next one's.

    `begin` is kept to the end: a query that is restarted before its first batch was done asks for a new initial
    offset, and must not plan that batch from there.

    Attributes:
        table_id: Which table: one of the same name that was made later has another.
        begin: The version at which the query started, or started anew after a gap.
        full: Whether the stream begins with the rows of that version.
        files: How many parts of that version's scan were read.
        version: The last version whose changes were all read.
        units: How many units of the next version's changes were read (`tablestore.following.admission`).
        rescans: How often the stream went on from the newest version because changes were gone.
    """

    table_id: str
    begin: int
    full: bool
    files: int
    version: int
    units: int = 0
    rescans: int = 0

    @classmethod
    def initial(cls, table_id: str, begin: int, *, full: bool, rescans: int = 0) -> Offset:
        """The offset before anything was read."""
        return cls(table_id, begin, full, 0, begin, 0, rescans)

    @property
    def is_initial(self) -> bool:
        """Returns whether nothing was read since the start."""
        return self.files == 0 and self.version == self.begin and self.units == 0

    @property
    def may_have_files(self) -> bool:
        """Returns whether rows of the first version may be left to read; once there are none, it may have expired."""
        return self.full and self.version == self.begin and self.units == 0

    @property
    def place(self) -> Place:
        """The same position among the table's changes."""
        return Place(self.version, self.units)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that Spark keeps."""
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Offset:
        """Reads what `to_json` made."""
        return cls(**value)

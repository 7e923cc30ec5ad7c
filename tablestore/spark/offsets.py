"""How far a stream has come, as the JSON object that Spark keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tablestore.following.admission import Place

__all__ = ["Offset"]


@dataclass(frozen=True, slots=True)
class Offset:
    """`files` parts of the scan of version `begin`, then all changes up to `version`, and some of the next one's.

    `begin` is kept to the end: a query that is restarted before its first batch was done asks for a new initial
    offset, and must not plan that batch from there.

    Attributes:
        table_id: Which table: one of the same name that was made later has another.
        begin: The version at which the query set out, or set out again.
        full: Whether its rows come first.
        files: How many parts of its scan were taken.
        version: All changes of this version were taken.
        units: So many of the next one's were (`tablestore.following.admission`).
        rescans: How often it had to go on from the newest version, since changes were gone.
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
        """Before anything was taken."""
        return cls(table_id, begin, full, 0, begin, 0, rescans)

    @property
    def is_initial(self) -> bool:
        """Whether nothing was taken since it set out."""
        return self.files == 0 and self.version == self.begin and self.units == 0

    @property
    def may_have_files(self) -> bool:
        """Whether rows of the version at which it set out may still be to come; it may have expired later."""
        return self.full and self.version == self.begin and self.units == 0

    @property
    def place(self) -> Place:
        """The same among the table's changes."""
        return Place(self.version, self.units)

    def to_json(self) -> dict[str, Any]:
        """For Spark."""
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Offset:
        """Back from `to_json`."""
        return cls(**value)

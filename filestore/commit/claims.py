"""Claims of versions in a database (FORMAT.md section 6.1). No library loads with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Claim", "Claims"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A version that somebody has claimed.

    Attributes:
        version: The version.
        file: The staged entry, relative to the table; no other claim has it.
        published: Whether the entry has its name.
    """

    version: int
    file: str
    published: bool = False


class Claims(Protocol):
    """The newest claim of one table. All methods may raise `Unavailable`, and may be repeated after it."""

    def newest(self) -> Claim | None:
        """Returns the newest claim; None if there was none yet.

        Raises:
            NotFound: the table was dropped.
        """

    def claim(self, wanted: Claim, after: Claim | None) -> Claim:
        """Makes a claim the newest, if that is still `after`, which is published. One of several callers wins.

        Returns:
            The newest claim: the wanted one, also if an earlier call has made it, or another one, which was faster.

        Raises:
            NotFound: the table was dropped.
        """

    def publish(self, claim: Claim) -> Claim | None:
        """Notes that a claim is published, if it is still the newest one; returns what is the newest then."""

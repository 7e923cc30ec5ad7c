"""Finds leases that were not renewed for too long, by what one process has seen and by its own clock. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Look", "Watch"]


@dataclass(frozen=True, slots=True)
class Look:
    """One listing of a table's leases.

    Attributes:
        tags: The leases' tags by commit id. A tag changes whenever its writer renews the lease.
        asked_s: When the storage was asked, in seconds of a clock that never jumps.
        answered_s: When it had answered.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    asked_s: float = float("-inf")
    answered_s: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Watch:
    """A process's knowledge of the leases, after it has listed them some times.

    No clock of another machine counts: a lease is dead if two looks found the same tag, and the time between the end
    of the first and the begin of the last is at least the time-out.

    Attributes:
        last: The last look.
        seen: For each lease of the last look its tag, and the end of the first look that found it.
    """

    last: Look = Look()
    seen: Mapping[str, tuple[str, float]] = field(default_factory=dict)

    def after(self, look: Look) -> Watch:
        """Returns what is known after one more look."""
        seen = {}
        for commit_id, tag in look.tags.items():
            known = self.seen.get(commit_id)
            seen[commit_id] = known if known is not None and known[0] == tag else (tag, look.answered_s)
        return Watch(look, seen)

    def without(self, commit_ids: Collection[str]) -> Watch:
        """Returns what is known once some leases were removed."""
        left = {commit_id: tag for commit_id, tag in self.last.tags.items() if commit_id not in commit_ids}
        seen = {commit_id: found for commit_id, found in self.seen.items() if commit_id in left}
        return Watch(replace(self.last, tags=left), seen)

    def dead(self, timeout_s: float) -> frozenset[str]:
        """Returns the leases that were not renewed for so many seconds."""
        return frozenset(c for c, (_, since_s) in self.seen.items() if self.last.asked_s - since_s >= timeout_s)

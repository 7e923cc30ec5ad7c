"""Refreshes all views of a catalog, round after round: one that fails holds up no other one, and is tried again later.

Several processes may do so at once: of two that refresh a view at the same time one commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from filestore.errors import NotFound, TableStoreError
from tablestore.views.shared_versions import SharedVersions
from tablestore.views.view import Refreshed, View

__all__ = ["RefreshOutcome", "Upkeep", "pause_after"]

LIST_SECONDS = 30.0
"""The seconds between two requests for the names of all views, which open each table of the catalog."""
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """The end of a view's refresh in a round, or the error that there was.

    Attributes:
        name: The view's name; None if the catalog could not be asked for its views.
        view: The view; None if it could not be opened.
        result: Its refresh; None if it was up to date, or failed.
        error: The error that there was.
    """

    name: str | None
    view: View | None = None
    result: Refreshed | None = None
    error: TableStoreError | None = None


@dataclass(slots=True)
class _Kept:
    """A view, and when it is tried again after it has failed so often."""

    view: View | None = None
    failures: int = 0
    next_s: float = 0.0


def pause_after(failures: int) -> float:
    """Returns the seconds until a view is tried again that has failed so often in a row. Pure."""
    return min(2.0 ** min(failures, 10), _LONGEST_PAUSE)


@dataclass(slots=True)
class Upkeep:
    """The views of a catalog, and what is known of them from one round to the next.

    Attributes:
        list_views: Returns the names of all views, each behind those that it reads.
        open_view: Opens a view.
        clock_s: Returns the seconds of a clock that never jumps.
    """

    list_views: Callable[[], Sequence[str]]
    open_view: Callable[[str], View]
    clock_s: Callable[[], float]
    _names: Sequence[str] = ()
    _listed_s: float | None = None
    _kept: dict[str, _Kept] = field(default_factory=dict)

    def round(self) -> Iterator[RefreshOutcome]:
        """Refreshes each view that is not waiting after a failure, and yields how each ended.

        All read the same version of each table (`SharedVersions`).

        An error that is none of ours is a fault of the program, and ends the round.

        A view that was created is found within `LIST_SECONDS`, and one that was dropped is none any more.
        """
        try:
            self._list()
        except TableStoreError as error:  # the views that are known are refreshed all the same
            yield RefreshOutcome(None, error=error)
        versions = SharedVersions()
        for name in self._names:
            kept = self._kept.setdefault(name, _Kept())
            if self.clock_s() >= kept.next_s:
                outcome = self._refreshed(name, kept, versions)
                if outcome is not None:
                    yield outcome

    def _list(self) -> None:
        now = self.clock_s()
        if self._listed_s is None or now - self._listed_s >= LIST_SECONDS:
            self._names = self.list_views()
            self._listed_s = now
            self._kept = {name: kept for name, kept in self._kept.items() if name in self._names}

    def _refreshed(self, name: str, kept: _Kept, versions: SharedVersions) -> RefreshOutcome | None:
        """Refreshes a view; returns None for one that was dropped."""
        try:
            kept.view = kept.view or self.open_view(name)
            result = kept.view.caught_up(versions)
        except TableStoreError as error:
            if isinstance(error, NotFound) and self._is_gone(name):
                return None
            view, kept.view = kept.view, None  # it may have been created again
            kept.failures += 1
            kept.next_s = self.clock_s() + pause_after(kept.failures)
            return RefreshOutcome(name, view, error=error)
        kept.failures, kept.next_s = 0, 0.0
        return RefreshOutcome(name, kept.view, result)

    def _is_gone(self, name: str) -> bool:
        self._listed_s = None
        try:
            self._list()
        except TableStoreError:
            return False
        return name not in self._names

"""Commits that the catalog's database holds, for warehouses whose store cannot keep writers apart (decision 93)."""

from __future__ import annotations

from dataclasses import dataclass

from catalog_service.database.claims import ClaimRows
from filestore.commit.claims import Claim, Claims
from filestore.errors import InvalidRequest

__all__ = ["CATALOG", "STORE", "HeldCommits"]

STORE, CATALOG = "store", "catalog"

_SETTING = "commits"


class HeldCommits:
    """The decision whether a warehouse's store or the catalog's database keeps commits of its tables apart.

    That is decided when the first database of the warehouse is created, and never changes: of two writers that believe
    different things one would overwrite the other's commit.

    Args:
        rows: The claims and settings.
        wanted: ``store`` or ``catalog``; None takes what was decided, and ``store`` for a new warehouse.

    Raises:
        InvalidRequest: ``bad-commits``; ``commits-fixed``: the other one was decided.
        Unavailable: the database does not answer.
    """

    def __init__(self, rows: ClaimRows, wanted: str | None = None) -> None:
        if wanted not in (None, STORE, CATALOG):
            raise InvalidRequest(
                f"commits = {wanted!r}: write store, or catalog if the warehouse's store has no conditional writes",
                code="bad-commits",
            )
        self._rows = rows
        self._wanted = wanted
        self._decided = self._read()
        self._check()

    def decide(self) -> None:
        """Decides, unless another process has done it. REQUIRES: the first database is about to be created.

        Raises:
            InvalidRequest: ``commits-fixed``.
        """
        self._decided = self._rows.decide_once(_SETTING, self._wanted or STORE)
        self._check()

    @property
    def in_catalog(self) -> bool:
        """Returns whether the catalog's database holds commits, or will."""
        return (self._decided or self._read() or self._wanted) == CATALOG

    @property
    def decision(self) -> str:
        """The decision: ``store`` or ``catalog``."""
        if self._decided is None:
            self._decided = self._read()
        return self._decided or STORE

    def claims(self, table_id: str) -> Claims | None:
        """Returns the claims of a table; None if the store keeps writers apart."""
        return TableClaims(self._rows, table_id) if self.decision == CATALOG else None

    def _read(self) -> str | None:
        """Returns what was decided; None if nothing was. Older versions left no note, since there was no choice."""
        decided = self._rows.setting(_SETTING)
        return STORE if decided is None and self._rows.has_databases() else decided

    def _check(self) -> None:
        if self._wanted is not None and self._decided not in (None, self._wanted):
            raise InvalidRequest(
                f"commits = {self._wanted}, but this warehouse was made with commits = {self._decided}, which cannot "
                "change, since writers that do not know of it would overwrite commits: leave the setting out, or make "
                "a new warehouse with a database of its own",
                code="commits-fixed",
            )


@dataclass(frozen=True, slots=True)
class TableClaims:
    """Implements `filestore.commit.claims.Claims` with the catalog's rows."""

    rows: ClaimRows
    table_id: str

    def newest(self) -> Claim | None:
        """Returns the newest claim."""
        return self.rows.newest_claim(self.table_id)

    def claim(self, wanted: Claim, after: Claim | None) -> Claim:
        """Makes a claim the newest one, if that is still `after`."""
        return self.rows.claim_version(self.table_id, wanted, after)

    def publish(self, claim: Claim) -> Claim | None:
        """Notes that a claim is published."""
        return self.rows.publish_claim(self.table_id, claim)

"""Decides which folders of a warehouse can be registered without a choice of the user. Pure.

A folder says which table it has, and not which of several copies is the newest one that anybody used, nor what the
table was called last. So where several folders have one table, or would get one name, none of them is registered: the
order in which folders are read decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from filestore.errors import AlreadyExists

__all__ = ["Candidate", "undecided"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A folder that could be registered: the catalog has neither its table nor, in its folder, another one.

    Attributes:
        database: The folder's database.
        folder: Its name.
        location: Its place.
        name: The name that its table would get; None if a folder of that name is refused.
        table_id: The id of its table; None if it cannot be read.
        version: The newest version.
        committed_ms: When that was committed.
    """

    database: str
    folder: str
    location: str
    name: str | None
    table_id: str | None = None
    version: int | None = None
    committed_ms: int | None = None

    def __str__(self) -> str:
        """Says which state of a table the folder has."""
        if self.version is None or self.committed_ms is None:
            return f"{self.location} (which cannot be read)"
        at = datetime.fromtimestamp(self.committed_ms / 1000, UTC).isoformat(" ", "seconds")
        return f"{self.location} (version {self.version}, last commit {at})"


def undecided(candidates: Iterable[Candidate]) -> dict[Candidate, AlreadyExists]:
    """Returns the candidates of which a user has to choose, each with the error that says between which.

    Args:
        candidates: All folders that could be registered by the same call.
    """
    tables: dict[str, list[Candidate]] = {}
    names: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.name is not None:
            names.setdefault((candidate.database, candidate.name), []).append(candidate)
        if candidate.table_id is not None:
            tables.setdefault(candidate.table_id, []).append(candidate)
    found = {candidate: _one_name(group) for group in names.values() if len(group) > 1 for candidate in group}
    return found | {candidate: _one_table(group) for group in tables.values() if len(group) > 1 for candidate in group}


def _one_name(group: Sequence[Candidate]) -> AlreadyExists:
    name = group[0].name
    return AlreadyExists(
        f"several folders would become {group[0].database}.{name}: {_listed(group)}. None of them was registered, "
        "since a table may have been renamed after its folder was made: register each table by its folder, with its "
        f"name, as in `tablestore register {group[-1].location} --name {name}`",
        code="several-folders",
    )


def _one_table(group: Sequence[Candidate]) -> AlreadyExists:
    return AlreadyExists(
        f"several folders have table {group[0].table_id}: {_listed(group)}. None of them was registered, since all but "
        "one are copies: register the right one by its folder, as in "
        f"`tablestore register {group[-1].location}`, and move the others out of the warehouse",
        code="several-folders",
    )


def _listed(group: Iterable[Candidate]) -> str:
    return ", ".join(map(str, group))

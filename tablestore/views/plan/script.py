"""`Script`: the relations that a refresh reads and makes, each a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from filestore.model.names import quoted

__all__ = ["OWN", "Changed", "Made", "Matching", "Query", "Rows", "Sampled", "Script", "distinct", "exists", "matching"]

OWN = "_tablestore_"
"""Names of relations and columns that begin so are ours."""


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a table.

    Attributes:
        table: ``database.table``.
        version: The version.
    """

    table: str
    version: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The rows of a table in one of two versions that the other one does not have.

    Attributes:
        table: ``database.table``.
        new: Whether those of the later version are meant.
    """

    table: str
    new: bool


@dataclass(frozen=True, slots=True)
class Sampled:
    """A few of the rows of a table in one version, drawn at random.

    Attributes:
        rows: The rows.
    """

    rows: Rows


@dataclass(frozen=True, slots=True)
class Matching:
    """The rows of a table in one version whose columns have the values of a row of another relation. Nulls are equal.

    Attributes:
        rows: The rows.
        columns: The columns.
        keys: The other relation.
        values: Its column for each of them.
    """

    rows: Rows
    columns: tuple[str, ...]
    keys: str
    values: tuple[str, ...]

    def text(self, rows: str) -> str:
        """Returns the query, over a relation that has all rows."""
        return matching(rows, self.columns, self.keys, self.values)


@dataclass(frozen=True, slots=True)
class Query:
    """The result of a query over relations before it.

    Attributes:
        text: The query.
        is_keys: Whether it has keys, which are used several times and are to be computed once.
    """

    text: str
    is_keys: bool = False


Made = Rows | Changed | Sampled | Matching | Query


@dataclass(frozen=True, slots=True)
class Script:
    """The computation of a refresh.

    Attributes:
        relations: The relations that it reads and makes, by name, in their order.
        keys: The name of that with the keys of the result that may differ.
        rows: The name of that with the new rows of these keys.
        stored: The name of that with the stored rows of these keys, where they are compared only.
    """

    relations: Mapping[str, Made]
    keys: str
    rows: str
    stored: str = ""


def distinct(queries: Sequence[str]) -> str:
    """Returns a query of the rows of several queries, each row once."""
    return "SELECT DISTINCT * FROM (\n{}\n)".format("\nUNION ALL ".join(queries))


def exists(keys: str, columns: Sequence[str], values: Sequence[str]) -> str:
    """Returns a condition: a relation has a row with some values. Nulls are equal."""
    pairs = zip(columns, values, strict=True)
    equal = " AND ".join(f"{OWN}k.{quoted(column)} <=> {value}" for column, value in pairs)
    return f"EXISTS (SELECT 1 FROM {keys} AS {OWN}k WHERE {equal})"


def matching(rows: str, own: Sequence[str], keys: str, columns: Sequence[str], listed: str = "*") -> str:
    """Returns a query of the rows whose columns have the values of a row of another relation."""
    values = [f"{OWN}r.{quoted(name)}" for name in own]
    return f"SELECT {listed} FROM {rows} AS {OWN}r WHERE {exists(keys, columns, values)}"

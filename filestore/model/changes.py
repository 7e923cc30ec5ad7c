"""Changes of a table's definition, as values. What they do is worked out in `filestore.model.evolution`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = [
    "AddColumn",
    "Change",
    "DropColumn",
    "MoveColumn",
    "RenameColumn",
    "SetComment",
    "SetNullable",
    "SetOption",
    "UnsetOption",
    "WidenColumn",
]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, which is null in all rows that are there. Metadata only.

    Attributes:
        name: Its name.
        type: SQL's spelling, such as ``DECIMAL(10,2)``, or an Arrow type.
        nullable: False only in a table without rows.
        comment: Free text.
        after: The column to stand behind; the last one if None.
        first: It stands first.
    """

    name: str
    type: str | pa.DataType
    nullable: bool = True
    comment: str | None = None
    after: str | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column and its values go. A column of that name that is added later is another one."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column gets another name."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """A column stands behind another, or first if `after` is None. Metadata only."""

    name: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A column gets a type that holds all of its values: BIGINT for INT, DOUBLE for FLOAT, DECIMAL with more digits."""

    name: str
    type: str | pa.DataType


@dataclass(frozen=True, slots=True)
class SetNullable:
    """A column that was NOT NULL may hold null from now on. Metadata only."""

    name: str


@dataclass(frozen=True, slots=True)
class SetComment:
    """The comment of a column, or of the table if `name` is None; None takes it away. Metadata only."""

    comment: str | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SetOption:
    """An option gets a value. Metadata only."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetOption:
    """An option has its default again. Metadata only."""

    name: str


Change = (
    AddColumn
    | DropColumn
    | RenameColumn
    | MoveColumn
    | WidenColumn
    | SetNullable
    | SetComment
    | SetOption
    | UnsetOption
)
"""One change of a definition."""

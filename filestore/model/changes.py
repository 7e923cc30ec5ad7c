"""Changes of a table's definition, as values. `filestore.model.evolution` applies them."""

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
    """Adds a column, which is null in all existing rows. Metadata only.

    Attributes:
        name: The column's name.
        type: Its type as SQL spells it, such as ``DECIMAL(10,2)``, or an Arrow type.
        nullable: Whether it may be null; False only in a table without rows.
        comment: Free text.
        after: The column before it; None puts it last.
        first: Whether it becomes the first column.
    """

    name: str
    type: str | pa.DataType
    nullable: bool = True
    comment: str | None = None
    after: str | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Removes a column and its values. A column of that name that is added later is another column."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Gives a column another name."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Moves a column behind another one, or to the first place if `after` is None. Metadata only."""

    name: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Changes a column's type to one that holds all its values: BIGINT for INT, DOUBLE for FLOAT, a longer DECIMAL."""

    name: str
    type: str | pa.DataType


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Makes a NOT NULL column nullable. Metadata only."""

    name: str


@dataclass(frozen=True, slots=True)
class SetComment:
    """Sets the comment of a column, or of the table if `name` is None; None removes it. Metadata only."""

    comment: str | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SetOption:
    """Sets an option. Metadata only."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetOption:
    """Removes an option, so that its default applies again. Metadata only."""

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

"""Names the leaf columns of a Parquet file, and which of them readers may skip by (FORMAT.md section 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

__all__ = ["Leaf", "leaves", "skippable"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column: a column without parts, or a part of a nested one.

    Attributes:
        steps: The name of the column, and those of the parts around the leaf and of the leaf, as Parquet has them.
        type: Its type.
        repeated: Whether it is in an ARRAY or a MAP, so that a row has any number of its values.
    """

    steps: tuple[str, ...]
    type: pa.DataType
    repeated: bool = False

    @property
    def path(self) -> str:
        """Parquet's name of the leaf. The names of two leaves can be the same: a column's name may contain a dot."""
        return ".".join(self.steps)

    @property
    def floating(self) -> bool:
        """Returns whether it is FLOAT or DOUBLE."""
        return bool(pa.types.is_floating(self.type))


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    """Yields the leaf columns in the order of the file."""
    for field in schema:
        yield from _leaves(Leaf((field.name,), field.type))


def _leaves(node: Leaf) -> Iterator[Leaf]:
    kind = node.type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(Leaf((*node.steps, field.name), field.type, node.repeated))
    elif pa.types.is_map(kind):
        for name, part in (("key", kind.key_type), ("value", kind.item_type)):
            yield from _leaves(Leaf((*node.steps, "key_value", name), part, repeated=True))
    elif pa.types.is_list(kind):
        yield from _leaves(Leaf((*node.steps, "list", "element"), kind.value_type, repeated=True))
    else:
        yield node


@lru_cache(maxsize=256)
def skippable(schema: pa.Schema) -> tuple[str, ...]:
    """Returns the names of the leaves that may have bounds and a dictionary: all that are not FLOAT or DOUBLE.

    Readers skip row groups by both, and disagree about floating-point numbers: a NaN is above all bounds for Spark and
    polars, and in none of Arrow's; -0.0 equals 0.0, except for a reader that looks 0.0 up in a dictionary.
    """
    floating = {leaf.path for leaf in leaves(schema) if leaf.floating}
    return tuple(leaf.path for leaf in leaves(schema) if leaf.path not in floating)

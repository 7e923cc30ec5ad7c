"""The columns by which the rows of a query are known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tablestore.views.plan.nodes import Block, Form, Input, Name, Node, Scan

__all__ = ["columns_equal_to", "key_of", "key_of_input", "row_key", "sources_of_key"]


def key_of(node: Node) -> tuple[str, ...] | None:
    """Returns columns of a node of which no two rows have the same values; None if there are none among its columns.

    They may be null, if they are groups.
    """
    if isinstance(node, Scan):
        return node.definition.primary_key or None
    if not isinstance(node, Block):
        return None
    if node.form is Form.GROUPS:
        names = tuple(address.name for address in node.address)
        return names if all(names) else None
    found: list[str] = []
    for name in row_key(node.inputs) or ():
        equal = columns_equal_to(name, node.inputs)
        item = next((item.name for item in node.items if item.origin in equal), None)
        if item is None:
            return None
        found.append(item)
    return tuple(found) or None


def key_of_input(source: Input) -> tuple[str, ...] | None:
    """Returns the same of the rows of an input that WHERE leaves."""
    return key_of(source.node) or source.first_by or None


def row_key(inputs: Sequence[Input]) -> tuple[Name, ...] | None:
    """Returns the columns of the inputs of which no two joined rows have the same values; None if there are none.

    It is the key of each input, less those that follow from others: an input whose key has to equal columns of others
    has at most one row for these.
    """
    sources = sources_of_key(inputs)
    keys = {number: key_of_input(inputs[number]) for number in sources}
    if any(key is None for key in keys.values()):
        return None
    return tuple(Name(number, column) for number, key in keys.items() for column in key or ())


def sources_of_key(inputs: Sequence[Input]) -> tuple[int, ...]:
    """Returns the numbers of the inputs whose keys make up that of the joined rows."""
    rows = {number: source for number, source in enumerate(inputs) if source.visible}
    kept = set(rows)
    for number in reversed(rows):
        if number in _determined(kept - {number}, rows):
            kept.discard(number)
    return tuple(sorted(kept))


def _determined(known: set[int], inputs: Mapping[int, Input]) -> set[int]:
    """Returns the inputs of which there is one row at most, for given rows of some others."""
    found = set(known)
    while True:
        more = {number for number in inputs.keys() - found if _has_one_row(number, found, inputs)}
        if not more:
            return found
        found |= more


def _has_one_row(number: int, known: set[int], inputs: Mapping[int, Input]) -> bool:
    key = key_of_input(inputs[number])
    if key is None:
        return False
    equal = {own for own, other in inputs[number].equal if other.sources <= known}
    if inputs[number].member:  # equality of members holds in both directions
        equal |= {
            other.column
            for place, source in inputs.items()
            if place in known and source.member
            for _, other in source.equal
            if isinstance(other, Name) and other.source == number
        }
    return equal >= set(key)


def columns_equal_to(name: Name, inputs: Sequence[Input]) -> set[Name]:
    """Returns a column, and those of members that equal it in each joined row."""
    found = {name}
    pairs = [
        (Name(number, own), other)
        for number, source in enumerate(inputs)
        if source.member
        for own, other in source.equal
        if isinstance(other, Name) and inputs[other.source].member
    ]
    while True:
        more = {a for pair in pairs for a, b in (pair, pair[::-1]) if b in found} - found
        if not more:
            return found
        found |= more

"""Sets parentheses into a condition of many terms, so that no parser goes as deep as it has terms. Pure.

SQL's parsers read ``a OR b OR c OR d`` as ``((a OR b) OR c) OR d``, and polars' parser ends the process if that is some
thousand levels deep. As ``(a OR b) OR (c OR d)`` the depth is the logarithm of the number of terms. The words of
the text stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["balanced"]

_FEW = 32
"""Fewer terms are left as they are written."""
_OPENING, _CLOSING = ("(", "["), (")", "]")
Term = tuple[int, int]
"""The number of a term's first word, and that of the word behind it."""


_SEPARATE = frozenset({",", ":", "CASE", "XOR", "SELECT", "FROM", "WITH", "VALUES", "TABLE", "AS"})
"""A level with one of these is not one condition, or a parenthesis before the word could change its meaning."""


@dataclass(slots=True)
class _Level:
    """The words between two parentheses.

    Attributes:
        start: The number of its first word.
        ors: The numbers of its words OR.
        ands: The numbers of its words AND, without those of BETWEEN.
        between: How many BETWEEN wait for their AND.
        whole: Whether it is one condition: others are left as they are.
    """

    start: int
    ors: list[int] = field(default_factory=list)
    ands: list[int] = field(default_factory=list)
    between: int = 0
    whole: bool = True

    def note(self, number: int, word: str) -> None:
        if word == "AND" and self.between:
            self.between -= 1
        elif word == "AND":
            self.ands.append(number)
        elif word == "OR":
            self.ors.append(number)
        elif word == "BETWEEN":
            self.between += 1
        elif word in _SEPARATE:
            self.whole = False


def balanced(words: Sequence[str]) -> str:
    """Joins the words of a condition to a text, with parentheses where a level has many ORs or ANDs.

    Args:
        words: All words and blanks, as every SQL parser splits the text.
    """
    added = [""] * (len(words) + 1)
    levels = [_Level(0)]
    for number, word in enumerate(words):
        if word in _OPENING:
            levels.append(_Level(number + 1))
        elif word in _CLOSING and len(levels) > 1:
            _close(levels.pop(), number, added)
        else:
            levels[-1].note(number, word.upper())
    if len(levels) == 1:
        _close(levels[0], len(words), added)
    return "".join(itertools.chain.from_iterable(zip(added, [*words, ""], strict=True)))


def _close(level: _Level, end: int, added: list[str]) -> None:
    """Adds the parentheses of a level that ends before the word `end`."""
    if not level.whole:
        return
    alternatives = _between(level.start, level.ors, end)
    _pair(alternatives, added)
    ands = iter([*level.ands, end])
    joined = next(ands)
    for start, stop in alternatives:
        inside = []
        while joined < stop:
            inside.append(joined)
            joined = next(ands)
        _pair(_between(start, inside, stop), added)


def _between(start: int, joins: Sequence[int], end: int) -> list[Term]:
    return list(zip([start, *(number + 1 for number in joins)], [*joins, end], strict=True))


def _pair(terms: Sequence[Term], added: list[str]) -> None:
    """Adds parentheses around both halves of the terms, and within them, if there are many."""
    open_terms = [terms] if len(terms) > _FEW else []
    while open_terms:
        some = open_terms.pop()
        halves = (some[: len(some) // 2], some[len(some) // 2 :])
        for half in halves:
            if len(half) > 1:
                added[half[0][0]] += "("
                added[half[-1][1]] += ")"
                open_terms.append(half)

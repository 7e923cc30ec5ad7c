"""Lists in parentheses, as tokens of sqlglot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["Parenthesized", "outside_parentheses", "parenthesized"]


@dataclass(frozen=True, slots=True)
class Parenthesized:
    """A list in parentheses.

    Attributes:
        items: The tokens between its commas; commas within further parentheses do not count.
        close: The number of the token ``)`` behind it.
    """

    items: tuple[tuple[Token, ...], ...]
    close: int


def parenthesized(tokens: Sequence[Token], begin: int) -> Parenthesized | None:
    """Returns the list that begins at a token; None if there is no ``(``, or if it is never closed."""
    if begin >= len(tokens) or tokens[begin].token_type is not TokenType.L_PAREN:
        return None
    items: list[list[Token]] = [[]]
    depth = 1
    for number in range(begin + 1, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0:
            return Parenthesized(tuple(map(tuple, items)), number)
        if depth == 1 and kind is TokenType.COMMA:
            items.append([])
        else:
            items[-1].append(tokens[number])
    return None


def outside_parentheses(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yields the tokens that are not in parentheses."""
    depth = 0
    for token in tokens:
        depth += token.token_type is TokenType.L_PAREN
        if depth == 0:
            yield token
        depth -= token.token_type is TokenType.R_PAREN

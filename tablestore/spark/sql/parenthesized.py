"""Lists in parentheses, as tokens of sqlglot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["Parenthesized", "options_of", "outside_parentheses", "parenthesized", "texts"]


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


def texts(tokens: Iterable[Token]) -> list[str]:
    """The words of a list of options. Strings that follow each other directly are one, with a quote in it."""
    found: list[str] = []
    end = None
    for token in tokens:
        if token.text in ("=", ","):
            continue
        if end is not None and token.start == end + 1:
            found[-1] += f"'{token.text}"
        else:
            found.append(token.text)
        end = token.end
    return found


def options_of(listed: Parenthesized) -> dict[str, str]:
    """Returns the options of a list ``('name' = 'value', …)``."""
    words = texts(token for item in listed.items for token in item)
    return dict(zip(words[::2], words[1::2], strict=False))

"""Lists in parentheses, as tokens of sqlglot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import InvalidRequest

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
    """The words of tokens. What follows directly is of the same word; two strings are one, with a quote in it."""
    found: list[str] = []
    before = None
    for token in tokens:
        if before is not None and token.start == before.end + 1:
            is_quote = token.token_type is before.token_type is TokenType.STRING
            found[-1] += f"'{token.text}" if is_quote else token.text
        else:
            found.append(token.text)
        before = token
    return found


def options_of(listed: Parenthesized) -> dict[str, str]:
    """Returns the options of a list ``('name' = 'value', …)``.

    Raises:
        InvalidRequest: ``bad-options``: an option without a value, or one that is given twice.
    """
    found: dict[str, str] = {}
    for item in listed.items:
        equals = next((number for number, token in enumerate(item) if token.token_type is TokenType.EQ), len(item))
        words = texts(item[:equals]) + texts(item[equals + 1 :])
        if len(words) != 2:  # Spark's grammar has no need of the sign
            raise InvalidRequest(
                f"{' '.join(token.text for token in item) or 'nothing'} is no option: write 'name' = 'value'",
                code="bad-options",
            )
        if words[0] in found:
            raise InvalidRequest(f"the option {words[0]} is given twice: leave one of the two out", code="bad-options")
        found[words[0]] = words[1]
    return found

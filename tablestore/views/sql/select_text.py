"""`SelectText`: a SELECT in the text of a query, and the positions of its clauses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

__all__ = ["SelectText", "Span", "WithText", "closing", "edited", "outside", "union_nodes", "union_parts", "with_text"]

Span = tuple[int, int]
"""The positions of a part of the text: that of its first character, and that behind its last one."""

_CLAUSES = {
    TokenType.FROM: "from",
    TokenType.WHERE: "where",
    TokenType.GROUP_BY: "group",
    TokenType.HAVING: "having",
    TokenType.ORDER_BY: "order",
    TokenType.SORT_BY: "sort",
    TokenType.CLUSTER_BY: "cluster",
    TokenType.DISTRIBUTE_BY: "distribute",
    TokenType.LIMIT: "limit",
    TokenType.OFFSET: "offset",
    TokenType.QUALIFY: "qualify",
}
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


@dataclass(frozen=True)
class SelectText:
    """The tokens of a SELECT.

    Attributes:
        tree: Its syntax tree, which is only read.
        tokens: Its tokens.
    """

    tree: exp.Select
    tokens: tuple[Token, ...]

    @property
    def span(self) -> Span:
        """The position of the SELECT."""
        return self.tokens[0].start, self.tokens[-1].end + 1

    @cached_property
    def clauses(self) -> Mapping[str, Span]:
        """The positions of what follows SELECT, FROM, WHERE, GROUP BY and so on; empty if it does not begin so."""
        tokens = self.tokens
        if tokens[0].token_type is not TokenType.SELECT:
            return {}
        if any(token.token_type in (TokenType.PIPE_GT, TokenType.HINT) for token in tokens):
            return {}
        found: dict[str, Span] = {}
        name, first = "select", 1
        while tokens[first].token_type in (TokenType.ALL, TokenType.DISTINCT):
            first += 1
        for number, token in [*outside(tokens), (len(tokens), None)]:
            clause = "" if token is None else _clause(tokens, number)
            if clause is None or (clause and not self.tree.args.get("from_" if clause == "from" else clause)):
                continue  # offset and limit may be names of columns
            if number > first:
                found[name] = (tokens[first].start, tokens[number - 1].end + 1)
            name, first = clause, number + 1
        return found

    def within(self, span: Span) -> list[Token]:
        """Returns the tokens of a part of the text."""
        return [token for token in self.tokens if span[0] <= token.start < span[1]]

    def enclosing(self, start: int) -> Iterator[list[Token]]:
        """Yields what each of the parentheses has around a token at some position, the innermost ones first."""
        opened: list[int] = []
        for number, token in enumerate(self.tokens):
            if token.start >= start:
                break
            if token.token_type in _OPENING:
                opened.append(number)
            elif token.token_type in _CLOSING:
                opened.pop()
        for opening in reversed(opened):
            yield list(self.tokens[opening + 1 : closing(self.tokens, opening)])

    def items(self, clause: str) -> list[Span]:
        """Returns the positions of the parts of a clause that commas separate."""
        tokens = self.within(self.clauses[clause])
        commas = [number for number, token in outside(tokens) if token.token_type is TokenType.COMMA]
        bounds = [-1, *commas, len(tokens)]
        return [(tokens[a + 1].start, tokens[b - 1].end + 1) for a, b in pairwise(bounds) if b > a + 1]

    def expression(self, span: Span) -> Span:
        """Returns the position of a part of the select list without its alias."""
        without = self.within(span)[:-1]
        if without and without[-1].token_type is TokenType.ALIAS:
            without = without[:-1]
        return without[0].start, without[-1].end + 1

    def sources(self) -> list[Span]:
        """Returns the positions of the tables of FROM and of its subqueries with their parentheses, without aliases."""
        tokens = self.within(self.clauses["from"])
        found, begins = [], True
        for number, token in outside(tokens):
            kind = token.token_type
            if begins and kind in _OPENING:
                found.append((token.start, tokens[closing(tokens, number)].end + 1))
            elif begins:
                found.append((token.start, token.end + 1))
            begins = kind in (TokenType.COMMA, TokenType.JOIN)
        return found


def _clause(tokens: Sequence[Token], number: int) -> str | None:
    """Returns the clause that begins at a token; None if none does, as at the FROM of IS DISTINCT FROM."""
    before = tokens[number - 1].token_type if number else None
    return None if before in (TokenType.DISTINCT, TokenType.DOT) else _CLAUSES.get(tokens[number].token_type)


def outside(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yields the tokens that are in no parentheses and in no CASE, with their numbers; of these only the first one."""
    within: list[TokenType] = []
    for number, token in enumerate(tokens):
        kind = token.token_type
        is_name = number > 0 and tokens[number - 1].token_type is TokenType.DOT  # such as window.end
        ends_case = kind is TokenType.END and within[-1:] == [TokenType.CASE] and not is_name
        if within and (kind in _CLOSING or ends_case):
            within.pop()
        elif not within:
            yield number, token
        if kind in _OPENING or (kind is TokenType.CASE and not is_name):
            within.append(kind)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Returns the number of the token that closes the parentheses which one opens."""
    depth = 0
    for number in range(opening, len(tokens)):
        depth += (tokens[number].token_type in _OPENING) - (tokens[number].token_type in _CLOSING)
        if not depth:
            return number
    raise ValueError("the parentheses are not closed")


@dataclass(frozen=True)
class WithText:
    """The tokens of a query that begins with WITH.

    Attributes:
        bodies: Those of the queries that it gives names, with their parentheses.
        rest: Those of the query behind it.
    """

    bodies: tuple[Sequence[Token], ...]
    rest: Sequence[Token]


def with_text(tokens: Sequence[Token]) -> WithText | None:
    """Takes a query apart that begins with WITH; returns None if no SELECT or FROM is outside of parentheses."""
    begins = (TokenType.SELECT, TokenType.FROM)
    begin = next((number for number, token in outside(tokens) if token.token_type in begins), None)
    if begin is None:
        return None
    opening = [number for number, token in outside(tokens[:begin]) if token.token_type is TokenType.L_PAREN]
    return WithText(tuple(tokens[number : closing(tokens, number) + 1] for number in opening), tokens[begin:])


def union_nodes(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yields each UNION of a tree before the queries that it connects; the query itself if it is none."""
    while isinstance(tree, exp.Subquery) and not any(value for name, value in tree.args.items() if name != "this"):
        tree = tree.this
    yield tree
    if isinstance(tree, exp.Union):
        yield from union_nodes(tree.this)
        yield from union_nodes(tree.expression)


def union_parts(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Returns the tokens of each query that UNION connects, without parentheses around it."""
    unions = [number for number, token in outside(tokens) if token.token_type is TokenType.UNION]
    found: list[Sequence[Token]] = []
    for begin, end in pairwise([-1, *unions, len(tokens)]):
        part = tokens[begin + 1 : end]
        if begin >= 0 and part and part[0].token_type in (TokenType.ALL, TokenType.DISTINCT):
            part = part[1:]
        while part and part[0].token_type is TokenType.L_PAREN and closing(part, 0) == len(part) - 1:
            part = part[1:-1]
        found.append(part)
    return found


def edited(text: str, edits: Sequence[tuple[Span, str]], span: Span) -> str:
    """Returns a part of a text in which other parts are replaced. Where one is within another one, the outer counts."""
    done, parts = span[0], []
    for (begin, end), new in sorted(edits, key=lambda edit: (edit[0][0], -edit[0][1])):
        if begin < done or end > span[1]:
            continue
        parts += [text[done:begin], new]
        done = end
    return "".join([*parts, text[done : span[1]]])

"""Matches a statement with a pattern of words. Pure.

OPTIMIZE {table} [WHERE {partition:where}]     words, a name of ours, and what may be left out
VACUUM {table} [RETAIN {n:number} HOURS]       a value or a parameter, which becomes the argument ``n``
VACUUM {table} [DRY RUN]=dry_run               words that make the argument ``dry_run`` true
ANALYZE TABLES [IN|FROM {database}] ...        one word or the other; a database, or the current one
GENERATE {} FOR TABLE {table} ...              any word; and anything behind it
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from tablestore.spark.sql.names import Names, call, is_word, literal, name_parts, named_table
from tablestore.spark.sql.parenthesized import parenthesized, texts

__all__ = ["Found", "matched", "parts_of", "tokens_of"]

_PART = re.compile(r"\[|\](?:=\w+)?|\{[^}]*\}|\.\.\.|[^\s\[\]{}]+")
_REST = "..."
_NAME = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Optional:
    """A part of a pattern that may be left out; with a name it is an argument that is true."""

    parts: tuple[str | Optional, ...]
    flag: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The parts of a statement that a pattern has found.

    Attributes:
        catalog: The catalog of its table or database; empty if it has not come yet.
        name: ``database.table``, or the database.
        arguments: The arguments of the call, as SQL spells them.
    """

    catalog: str = ""
    name: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)

    def with_argument(self, name: str, value: str) -> Found:
        """Returns this with one more argument."""
        return replace(self, arguments={**self.arguments, name: value})

    def call(self, procedure: str, fixed: Mapping[str, str]) -> str:
        """Returns the call, with these arguments, too."""
        return call(self.catalog, procedure, {**self.arguments, **fixed})


def tokens_of(statement: str) -> list[Token]:
    """Returns the tokens of a statement without its semicolon. Of some verbs sqlglot takes all that follows as one."""
    tokens = sqlglot.tokenize(statement, dialect="spark")
    if len(tokens) > 1 and tokens[0].token_type in (TokenType.COMMAND, TokenType.SHOW):
        verb = [
            word for text in tokens[0].text.split() for word in sqlglot.tokenize(text, dialect="spark")
        ]  # MSCK REPAIR
        tokens = [*verb, *sqlglot.tokenize(tokens[1].text, dialect="spark"), *tokens[2:]]
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return tokens


def parts_of(pattern: str) -> tuple[str | Optional, ...]:
    """Parses a pattern."""
    stack: list[list[str | Optional]] = [[]]
    for part in _PART.findall(pattern):
        if part == "[":
            stack.append([])
        elif part.startswith("]"):
            inner = tuple(stack.pop())
            stack[-1].append(Optional(inner, part.removeprefix("]").removeprefix("=")))
        else:
            stack[-1].append(part)
    [parts] = stack
    return tuple(parts)


def matched(parts: Sequence[str | Optional], tokens: Sequence[Token], names: Names) -> Found | None:
    """Returns what a statement has; None if it is another one, or about a table of others."""
    exact = _REST not in parts  # else any words would be the rest of a statement about a table called TABLE
    places = _places(parts, tokens, (Found(), 0), names, exact=exact)
    found = next((found for found, end in places if end == len(tokens)), None)
    if found is None or found.catalog:
        return found
    if names.catalog not in names.catalogs or not names.database:
        return None
    return Found(names.catalog, names.database, {"database": literal(names.database), **found.arguments})


_Place = tuple[Found, int]


def _places(
    parts: Sequence[str | Optional], tokens: Sequence[Token], place: _Place, names: Names, *, exact: bool
) -> Iterator[_Place]:
    """Yields each place at which the parts may end; what may be left out is first looked for."""
    if not parts:
        yield place
        return
    part = parts[0]
    if part == _REST:
        yield place[0], len(tokens)
        return
    if isinstance(part, Optional):
        nexts = [_flagged(part, inner) for inner in _places(part.parts, tokens, place, names, exact=exact)]
        if exact or not nexts:  # a table may be called TABLE
            nexts.append(place)
    else:
        found = _one(part, tokens, place[1], place[0], names)
        nexts = [] if found is None else [found]
    for following in nexts:
        yield from _places(parts[1:], tokens, following, names, exact=exact)


def _flagged(part: Optional, place: _Place) -> _Place:
    return (place[0].with_argument(part.flag, "true"), place[1]) if part.flag else place


def _one(part: str, tokens: Sequence[Token], at: int, found: Found, names: Names) -> _Place | None:
    if at >= len(tokens):
        return None
    if not part.startswith("{"):
        return (found, at + 1) if is_word(tokens[at], part.split("|")) else None
    name, _, kind = part[1:-1].partition(":")
    if not name:
        return found, at + 1
    if name == "table":
        return _table(tokens, at, found, names)
    if name == "database":
        return _database(tokens, at, found, names)
    value = _KINDS[kind](tokens, at)
    return None if value is None else (found.with_argument(name, value[0]), value[1])


def _table(tokens: Sequence[Token], at: int, found: Found, names: Names) -> _Place | None:
    if tokens[at].token_type is not TokenType.IDENTIFIER and not _NAME.fullmatch(tokens[at].text):
        return None
    table = named_table(tokens, at, names)
    # Delta names a folder by 'a text', or by delta.`/a/folder`
    if table is None or tokens[at].token_type is TokenType.STRING or "/" in table.name:
        return None
    ours = replace(found, catalog=table.catalog, name=table.name)
    return ours.with_argument("table", literal(table.name)), table.end


def _database(tokens: Sequence[Token], at: int, found: Found, names: Names) -> _Place | None:
    parts, end = name_parts(tokens, at)
    if len(parts) > 2 or (len(parts) == 1 and names.is_of_others(parts[0])):
        return None
    catalog, database = parts if len(parts) == 2 else (names.catalog, parts[0])
    if catalog not in names.catalogs:
        return None
    return replace(found, catalog=catalog, name=database).with_argument("database", literal(database)), end


_Value = tuple[str, int]


def _parameter(tokens: Sequence[Token], at: int) -> _Value | None:
    """``?`` or ``:name``, in whose place Spark puts a value: the calls have them where the statements have them."""
    if tokens[at].token_type is TokenType.PLACEHOLDER:
        return "?", at + 1
    if tokens[at].token_type is not TokenType.COLON or at + 1 == len(tokens):
        return None
    name = tokens[at + 1]
    is_name = name.token_type is not TokenType.STRING and _NAME.fullmatch(name.text)
    return (f":{name.text}", at + 2) if is_name else None


def _number(tokens: Sequence[Token], at: int) -> _Value | None:
    """A number that is not negative.

    A parameter that is null is not one that is left out, but a number that is none; one with a fraction is refused.
    Spark fills in defaults of a CALL only if its arguments need no other types, so both have the same.
    """
    if (given := _parameter(tokens, at)) is not None:
        return f"coalesce(CAST(CAST({given[0]} AS STRING) AS BIGINT), -1L)", given[1]
    return (tokens[at].text, at + 1) if tokens[at].text.isdigit() else None


def _text(tokens: Sequence[Token], at: int) -> _Value | None:
    """A text; a parameter that is null is an empty one, which names nothing."""
    if (given := _parameter(tokens, at)) is not None:
        return f"coalesce(CAST({given[0]} AS STRING), '')", given[1]
    end = at
    while end < len(tokens) and tokens[end].token_type is TokenType.STRING:
        end += 1
    found = texts(tokens[at:end])
    return (literal(found[0]), end) if len(found) == 1 else None


def _moment(tokens: Sequence[Token], at: int) -> _Value | None:
    """A time as a text in UTC, which the procedures take.

    It is counted from 1970 in microseconds: a wall clock of the session's time zone would skip and repeat hours. What
    is no time is null unless ANSI is on, and then becomes a text that is none.
    """
    found = _parameter(tokens, at) or _text(tokens, at)
    if found is None:
        return None
    time = f"CAST({found[0]} AS TIMESTAMP_LTZ)"
    utc = f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + unix_micros({time}) * INTERVAL '0.000001' SECOND"
    return f"coalesce(CAST({utc} AS STRING), {literal(time)})", found[1]


def _partition(tokens: Sequence[Token], at: int) -> _Value | None:
    """``PARTITION (day = '2026-01-31', …)``."""
    listed = parenthesized(tokens, at + 1)
    if not is_word(tokens[at], ("PARTITION",)) or listed is None:
        return None
    values = _values(listed.items, TokenType.EQ)
    return None if values is None else (values, listed.close + 1)


def _where(tokens: Sequence[Token], at: int) -> _Value | None:
    """``day = '2026-01-31' AND region IS NULL AND …``."""
    items: list[list[Token]] = [[]]
    end = at
    while end < len(tokens) and not _ends(items[-1], tokens[end]):
        if tokens[end].token_type is TokenType.AND:
            items.append([])
        else:
            items[-1].append(tokens[end])
        end += 1
    values = _values(items, TokenType.IS)
    return None if values is None else (values, end)


def _ends(item: Sequence[Token], token: Token) -> bool:
    """Returns whether a word is behind a condition; else it is the name of a column or of a parameter."""
    is_whole = len(item) > 2 and item[-1].token_type is not TokenType.COLON
    return is_whole and is_word(token, ("APPLY", "ZORDER", "FULL"))


def _values(items: Sequence[Sequence[Token]], null: TokenType) -> str | None:
    """The values of columns as a text with a JSON object; None if anything else is asked of them.

    Args:
        items: The columns with their values.
        null: What stands before NULL: nothing is equal to it in WHERE, but PARTITION names partitions.
    """
    spec: dict[str, str | None] = {}
    parameters: dict[str, str] = {}
    for item in items:
        column, value = item[:1], item[2:]
        # 'day' = '…' compares two texts
        if not value or column[0].token_type is TokenType.STRING or column[0].text in spec:
            return None
        name = column[0].text
        is_equal = item[1].token_type is TokenType.EQ
        if is_equal and (given := _parameter(value, 0)) is not None and given[1] == len(value):
            parameters[name], spec[name] = given[0], None
        elif is_equal and (words := _literal(value)) is not None:
            spec[name] = words
        elif item[1].token_type is null and _is_null(value):
            spec[name] = None
        else:
            return None
    if not parameters:
        return literal(json.dumps(spec, ensure_ascii=False)) if spec else None
    parts = [literal("{")]
    for name, text in spec.items():
        given_text = _in_json(parameters[name]) if name in parameters else _json(text)
        if name in parameters and null is TokenType.EQ:
            given_text = f"coalesce({given_text}, 'null')"
        parts += [literal(", ")] * (len(parts) > 1)
        parts += [literal(f"{json.dumps(name)}: "), given_text]
    return f"coalesce(concat({', '.join([*parts, literal('}')])}), {_NO_ROW})"


def _literal(value: Sequence[Token]) -> str | None:
    """The text of a literal that is not null; None for all else."""
    if len(value) > 1 and is_word(value[0], ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")):
        value = value[1:]
    negative = len(value) > 1 and is_word(value[0], ("-",))
    words = texts(value[1:] if negative else value)
    if len(words) != 1 or value[-1].token_type not in _LITERALS:
        return None
    return "-" * negative + words[0]


def _is_null(value: Sequence[Token]) -> bool:
    return [token.token_type for token in value] == [TokenType.NULL]


def _json(text: str | None) -> str:
    return literal(json.dumps(text, ensure_ascii=False))


def _in_json(parameter: str) -> str:
    """The value of a parameter as in JSON, or null. Spark's own to_json is no constant for a CALL."""
    text = f"CAST({parameter} AS STRING)"
    for character in (_ESCAPE, '"'):
        text = f"replace({text}, {literal(character)}, {literal(_ESCAPE + character)})"
    return f"""concat('"', {text}, '"')"""


_NO_ROW = literal("no row is equal to NULL: write IS NULL")
"""The text in the place of all values if one in WHERE is null. It is no partition, so it is refused, and shown."""
_ESCAPE = "\\"

_LITERALS = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE})

_KINDS: Mapping[str, Callable[[Sequence[Token], int], _Value | None]] = {
    "number": _number,
    "text": _text,
    "moment": _moment,
    "partition": _partition,
    "where": _where,
}
"""The kinds of values: each returns the argument, and the number of the token behind it."""

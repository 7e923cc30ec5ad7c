"""Rewrites ``FOR SYSTEM_TIME AS OF`` a column, Flink's temporal join, which Spark's grammar lacks. Pure: text to text.

    FROM o JOIN shop.d FOR SYSTEM_TIME AS OF o.ts AS d    FROM o JOIN shop.d WITH ('system_time' = 'o.ts') AS d

``TemporalTables.java`` reads the option, by which each row has a time of its own. A time without columns is Spark's own
clause: one version for the whole statement, which is the newest one for ``current_timestamp()``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from filestore.errors import Unsupported
from tablestore.spark.sql.names import NamedTable, Names, literal, name_begin, name_parts, table_ending, words_of
from tablestore.spark.sql.parenthesized import parenthesized

__all__ = ["common_tables", "temporal_joins"]

_OPTION = "'system_time'"
_BEFORE = frozenset({"FROM", "JOIN", ",", "("})
"""The words behind which a query names a table that it reads."""
_BEHIND_TABLE = frozenset(
    {"ANTI", "AS", "CHANGES", "CLUSTER", "CROSS", "DISTRIBUTE", "EXCEPT", "FOR", "FULL", "GROUP", "HAVING", "INNER"}
    | {"INTERSECT", "JOIN", "LATERAL", "LEFT", "LIMIT", "MINUS", "NATURAL", "ON", "ORDER", "PIVOT", "RIGHT", "SEMI"}
    | {"SORT", "TABLESAMPLE", "TIMESTAMP", "UNION", "UNPIVOT", "USING", "VERSION", "WHERE", "WINDOW", "WITH"}
)
"""The words that may follow the name of a table."""
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "||", "&", "|", "^", "[", "::"})


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause ``[FOR] SYSTEM_TIME AS OF time`` behind a table of ours.

    Attributes:
        table: ``database.table``.
        first: The number of the first token of its name.
        begin: The number of the first token of the clause.
        time: The number of the first token of the time.
        end: The number of the token behind it.
        by_row: Whether the time names a column.
    """

    table: str
    first: int
    begin: int
    time: int
    end: int
    by_row: bool


def temporal_joins(statement: str, names: Names, *, streaming: bool = False) -> str:
    """Returns the statement with each time that names a column as an option of its table.

    A materialized view keeps the clause: its query is read where the view is created, and looks new events up by it.

    Args:
        statement: The statement.
        names: The catalogs of the session.
        streaming: Whether it is the query of a stream, as one is that reads ``FROM STREAM``. There a time without
            columns is an option of a table that is joined, too, by which ``current_timestamp()`` is the time of each
            micro-batch: Spark would keep the version of the start.

    Raises:
        Unsupported: ``temporal-join``: a time whose end is not clear, or that has a parameter; a name that ``WITH``
            gives to a query.
    """
    tokens = sqlglot.tokenize(statement, dialect="spark")
    words = words_of(tokens[:5])
    if words[:1] == ["CREATE"] and ["MATERIALIZED", "VIEW"] in (words[1:3], words[3:5]):
        return statement
    streaming = streaming or _reads_stream(statement, tokens)
    parts: list[str] = []
    done = 0
    for clause in _clauses(statement, tokens, names):
        if not clause.by_row and not (streaming and _is_joined(tokens, clause)):
            continue
        written = tokens[clause.begin - 1].text
        if clause.first == clause.begin - 1 and written.lower() in common_tables(tokens):  # without its database
            raise Unsupported(
                f"{written} is a query of WITH here, which has no versions by time: FOR SYSTEM_TIME AS OF a column is "
                "for managed tables",
                code="temporal-join",
            )
        first, last = tokens[clause.time], tokens[clause.end - 1]
        time = statement[first.start : last.end + 1]
        if clause.end < len(tokens) and tokens[clause.end].text in _OPERATORS:
            raise Unsupported(
                f"put the time of {clause.table} FOR SYSTEM_TIME AS OF {time} {tokens[clause.end].text} … into "
                "parentheses, so that its end is clear",
                code="temporal-join",
            )
        if _has_parameter(time):
            raise Unsupported(
                f"{clause.table} FOR SYSTEM_TIME AS OF {time} has a parameter in its time: write the value, or compute "
                "the time in a subquery of the other side",
                code="temporal-join",
            )
        parts += [statement[done : tokens[clause.begin].start], f"WITH ({_OPTION} = {literal(time)}"]
        options = clause.end + 1
        if options < len(tokens) and tokens[clause.end].token_type is TokenType.WITH and tokens[options].text == "(":
            parts.append(", ")
            done = tokens[options].end + 1
        else:
            parts.append(")")
            done = last.end + 1
    return "".join([*parts, statement[done:]])


def _clauses(statement: str, tokens: Sequence[Token], names: Names) -> Iterator[_Clause]:
    for number, token in enumerate(tokens):
        words = words_of(tokens[number + 1 : number + 3])
        if token.text.upper() != "SYSTEM_TIME" or words != ["AS", "OF"]:
            continue
        begin = number - 1 if number and tokens[number - 1].text.upper() == "FOR" else number
        table = _table_before(tokens, begin, names)
        end = _end_of_time(tokens, number + 3)
        if table is not None and end is not None:
            time = statement[tokens[number + 3].start : tokens[end - 1].end + 1]
            yield _Clause(table.name, table.begin, begin, number + 3, end, _names_a_column(time))


def _reads_stream(statement: str, tokens: Sequence[Token]) -> bool:
    """Returns whether a query reads ``FROM STREAM name`` or ``STREAM(name)``; a table may be called stream, too."""
    for number, token in enumerate(tokens[1:-1], 1):
        behind_from = tokens[number - 1].text.upper() in ("FROM", "JOIN")
        if behind_from and token.text.upper() == "STREAM" and statement[token.start] != "`":
            following = tokens[number + 1].text
            if following == "(" or (following[:1].isalpha() and following.upper() not in _BEHIND_TABLE):
                return True
    return False


def _is_joined(tokens: Sequence[Token], clause: _Clause) -> bool:
    """Returns whether a table is the right side of a join that may be inner or left.

    In the query of a stream each micro-batch looks rows up in it. Any other table has one version, that of the start.
    """
    *kind, join = ["", *words_of(tokens[max(clause.first - 3, 0) : clause.first])]
    if join != "JOIN" or kind[-1] in ("SEMI", "ANTI", "RIGHT", "FULL"):
        return False
    return kind[-2:] not in (["RIGHT", "OUTER"], ["FULL", "OUTER"])


def _table_before(tokens: Sequence[Token], end: int, names: Names) -> NamedTable | None:
    """Returns the table of ours that a query reads by the name before a token."""
    table = table_ending(tokens, end, names.without_views)
    if table is None:
        return None
    before = table.begin - 1
    if tokens[before].text == "$":  # of a system table
        before = name_begin(tokens, before) - 1
    return table if tokens[before].text.upper() in _BEFORE else None


def common_tables(tokens: Sequence[Token]) -> set[str]:
    """Returns the names that ``WITH [RECURSIVE] name …, name …`` gives to queries, in lower case."""
    found: set[str] = set()
    for number, token in enumerate(tokens):
        if token.token_type is not TokenType.WITH:
            continue
        begin = number + 1
        if begin < len(tokens) and tokens[begin].text.upper() == "RECURSIVE":
            found |= _common_tables_from(tokens, begin + 1)
        found |= _common_tables_from(tokens, begin)
    return found


def _common_tables_from(tokens: Sequence[Token], begin: int) -> set[str]:
    """The names of queries ``name [(columns)] [MAX RECURSION LEVEL number] [AS] (query), …`` behind ``WITH``."""
    found: set[str] = set()
    while begin < len(tokens) and tokens[begin].token_type is not TokenType.L_PAREN:
        columns = parenthesized(tokens, begin + 1)
        end = begin + 1 if columns is None else columns.close + 1
        if words_of(tokens[end : end + 3]) == ["MAX", "RECURSION", "LEVEL"]:
            end += 4
        if end < len(tokens) and tokens[end].token_type is TokenType.ALIAS:
            end += 1
        query = parenthesized(tokens, end) or columns
        if query is None:
            break
        found.add(tokens[begin].text.lower())
        begin = query.close + 2
        if query.close + 1 >= len(tokens) or tokens[query.close + 1].token_type is not TokenType.COMMA:
            break
    return found


def _end_of_time(tokens: Sequence[Token], begin: int) -> int | None:
    """The number of the token behind a name, a call, a literal with its type, or parentheses; None if none begins."""
    if begin >= len(tokens):
        return None
    if (listed := parenthesized(tokens, begin)) is not None:
        return listed.close + 1
    if tokens[begin].text == ":":  # of a parameter
        return min(begin + 2, len(tokens))
    _, end = name_parts(tokens, begin)
    if end < len(tokens) and tokens[end].token_type is TokenType.STRING:
        return end + 1
    listed = parenthesized(tokens, end)
    return end if listed is None else listed.close + 1


def _names_a_column(time: str) -> bool:
    try:
        parsed = sqlglot.parse_one(time, dialect="spark")
    except SqlglotError:
        return False  # Spark says what is wrong with it
    columns = (found for found in parsed.find_all(exp.Column) if found.table or found.name.lower() != "localtimestamp")
    return parsed.find(exp.Query) is None and any(columns)  # Spark has that function without parentheses, too


def _has_parameter(time: str) -> bool:
    try:
        return sqlglot.parse_one(time, dialect="spark").find(exp.Placeholder) is not None
    except SqlglotError:
        return False

"""Decides which SQL texts are allowed as conditions, before polars parses a text.

Polars runs a subquery while it parses the text, also one that reads a file of this machine (``FROM read_csv('…')``),
and its error message may quote the file. So polars only gets a text that every SQL parser splits into the same words,
and whose parts, as sqlglot parses them, are all allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser

from filestore.reading.condition_shape import balanced

__all__ = ["ConditionDialect", "plain_text", "problem_of"]


class ConditionDialect(DuckDB):
    """DuckDB's dialect with polars' additions: binary literals, names in backticks, XOR."""

    class Tokenizer(DuckDB.Tokenizer):
        """Adds the binary literals and the backtick."""

        IDENTIFIERS = ['"', "`"]  # noqa: RUF012  # this is sqlglot's way to declare a dialect
        HEX_STRINGS = [("x'", "'"), ("X'", "'"), ("0x", ""), ("0X", "")]  # noqa: RUF012
        BIT_STRINGS = [("b'", "'"), ("B'", "'")]  # noqa: RUF012
        KEYWORDS = DuckDB.Tokenizer.KEYWORDS | {"XOR": TokenType.XOR}

    class Parser(DuckDBParser):
        """Adds XOR."""

        CONJUNCTION = DuckDBParser.CONJUNCTION | {TokenType.XOR: exp.Xor}


_STRING = r"'(?:[^']|'')*+'"
_NUMBER = r"(?:0[xX][0-9a-fA-F]++|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(?!\w)"
_LITERAL = rf"(?:{_STRING}(?!')|-?{_NUMBER})"
_LONG_LIST = 64
_SPOKEN = frozenset(
    """
    AND OR XOR NOT IN IS NULL ISNULL NOTNULL TRUE FALSE LIKE ILIKE RLIKE REGEXP SIMILAR TO ESCAPE BETWEEN CASE WHEN THEN
    ELSE END AS EXISTS ANY SOME ALL DISTINCT FROM FOR INTERVAL AT TIME ZONE COLLATE OVER PARTITION BY ORDER ASC DESC
    NULLS FIRST LAST ROWS RANGE FILTER WITHIN GROUP DIV
    """.split()  # noqa: SIM905  # a list of them would fill a page
)
"""The keywords of conditions. sqlglot reserves more; those are names of columns here, as in polars."""
_COMPOSED = (TokenType.MAP, TokenType.UNION)
"""Types that are never used without their element types."""
_LEXEMES = re.compile(
    rf"(?P<list>(?P<first>{_LITERAL})(?:\s*+,\s*+{_LITERAL}){{{_LONG_LIST},}}+)"
    rf"|(?P<text>{_STRING}|[xX]'[0-9a-fA-F]*+'(?!')|[bB]'[01]*+'(?!'))"
    r'|(?P<quoted>"(?:[^"]|"")*+"|`[^`]*+`)'
    r"|(?P<comment>--[^\r\n]*+|/\*(?:(?!/\*|\*/).)*+\*/)"
    r"|(?P<query>(?i:select|\((?:\s*+\()*+\s*+(?:from|with|values|table))\b)"
    r"|(?P<prefixed>(?:[^\W\d]\w?|[uU]&)(?=['\"`]))"
    r"|(?P<word>[^\W\d]\w*+)"
    rf"|(?P<plain>{_NUMBER}|\s++|(?!--|/\*)[-+*/%<>=!~|&^(),.\[\]:@#])"
    r"|(?P<odd>.)",
    re.DOTALL,
)
"""Words that every SQL parser finds in the same way. A long list of literals is one word, since it has no structure."""

_ALLOWED = (
    exp.Condition,  # columns, literals, operators and functions, except those of _REFUSED
    exp.Array,
    exp.DataType,
    exp.DataTypeParam,
    exp.Dot,
    exp.Identifier,
    exp.Interval,
    exp.IntervalSpan,
    exp.JSONPath,
    exp.JSONPathPart,
    exp.Order,
    exp.Ordered,
    exp.Slice,
    exp.Star,
    exp.Tuple,
    exp.Var,
    exp.WindowSpec,
)
_REFUSED = (exp.Exists, exp.ReadCSV, exp.ReadParquet, exp.Parameter, exp.Placeholder, exp.SessionParameter)
_TOO_DEEP = "it is nested too deeply"
_DEEPEST = 1000
"""The depth that is allowed. A few times as many end the process: polars' parser does not look at its stack."""
_NO_SUBQUERY = (
    "use no subquery: a condition checks one row of the table (a column with such a name needs double quotes)"
)


def problem_of(text: str) -> str | None:
    """Says why a text without comments is not allowed as a condition; None if it is. It executes and opens nothing."""
    shortened = []
    for found in _LEXEMES.finditer(text):
        match found.lastgroup:
            case "query":
                return _NO_SUBQUERY
            case "prefixed" | "odd":
                return (
                    f"{text[found.start() :][:20]!r} is not understood: write texts in single quotes, names in double"
                )
            case "word" if _reserved(found.group()) and text[found.end() :].lstrip()[:1] not in ("(", "'"):
                shortened.append(f'"{found.group()}"')
            case "list":
                shortened.append(found["first"])
            case _:
                shortened.append(found.group())
    return _structure_problem("".join(shortened))


def plain_text(text: str) -> str:
    """Returns a text that parsers read alike: blanks for comments, whose end they see differently, and not too deep."""
    return balanced([" " if f.lastgroup == "comment" else f.group() for f in _LEXEMES.finditer(text)])


def _reserved(word: str) -> bool:
    kind = ConditionDialect.Tokenizer.KEYWORDS.get(word.upper())
    return kind in _COMPOSED or (kind not in {None, *DuckDBParser.TYPE_TOKENS} and word.upper() not in _SPOKEN)


def _structure_problem(text: str) -> str | None:
    try:
        tree = sqlglot.parse_one(text, read=ConditionDialect, into=exp.Condition)
    except SqlglotError:
        return "it cannot be read as a condition like amount > 10 AND region = 'a' (quote names that are SQL words)"
    except RecursionError:
        return _TOO_DEEP
    for node, depth in _with_depth(tree):
        if depth > _DEEPEST:
            return _TOO_DEEP
        if isinstance(node, exp.Query | exp.Exists | exp.Table):
            return _NO_SUBQUERY
        if isinstance(node, exp.Alias):
            return f"{node.alias!r} follows after the end of the condition"
        if isinstance(node, _REFUSED) or not isinstance(node, _ALLOWED):
            return f"{node.sql(ConditionDialect)!r} is not allowed in a condition"
    return None


def _with_depth(tree: exp.Expr) -> Iterator[tuple[exp.Expr, int]]:
    open_nodes = [(tree, 0)]
    while open_nodes:
        node, depth = open_nodes.pop()
        yield node, depth
        open_nodes += ((part, depth + 1) for part in node.iter_expressions())

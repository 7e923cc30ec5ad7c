"""Parses the text of a query of Spark, with what sqlglot's own parser of it lacks or loses. Pure."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

__all__ = ["parsed"]


class _Parser(SparkParser):
    """Makes each step of a pipe (``FROM t |> WHERE … |> SELECT …``) a query of the query before it.

    sqlglot writes a step into that query, and what the query has in its place is lost: functions and subqueries of the
    first list of columns behind ``|> SELECT``, and the columns themselves behind ``|> JOIN``.
    """

    def _parse_pipe_syntax_query(self, query: exp.Query) -> exp.Query | None:
        while self._match(TokenType.PIPE_GT):
            inner = query if isinstance(query, exp.Subquery) else query.subquery(copy=False)
            query = self._step(exp.select("*").from_(inner, copy=False))
        return query

    def _step(self, query: exp.Select) -> exp.Query:
        word = self._curr.text.upper() if self._curr else ""
        if word in ("DROP", "SET"):
            self._advance()
            found = self._parse_csv(self._parse_assignment)
            return query.select(*[exp.alias_(one.expression, "_") for one in found if isinstance(one, exp.EQ)])
        if (known := self.PIPE_SYNTAX_TRANSFORM_PARSERS.get(word)) is not None:
            step = known(self, query)
        else:
            step = self._parse_pipe_syntax_set_operator(query) or self._parse_pipe_syntax_join(query)
        if not isinstance(step, exp.Query):
            self.raise_error(f"the pipe has a step {word}, which is not known here")
            return query
        return step


class _Dialect(Spark):
    Parser = _Parser


def parsed(text: str) -> exp.Expr:
    """Returns the syntax tree of a text; raises `SqlglotError`."""
    return sqlglot.parse_one(text, dialect=_Dialect)

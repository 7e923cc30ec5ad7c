"""Writes a query without WITH: in the place of each name that it gives is the query that has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from filestore.model.names import quoted
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.sql.select_text import Span, edited, with_text
from tablestore.views.sql.view_query import ViewQuery, parse_view, position

__all__ = ["without_with"]


def without_with(query: ViewQuery) -> ViewQuery:
    """Returns a query that has the same rows and no WITH at its beginning; the query itself if it has none.

    Functions whose result does not follow from rows are refused in a view, so a part has the same rows at each place.

    Raises:
        NotPlainError: the clause has more than names and queries.
    """
    clause = query.tree.args.get("with_")
    if clause is None or query.has_pipe:  # whose tree has one that is not in the text
        return query
    named = clause.expressions
    if clause.args.get("recursive") or any(one.args["alias"].args.get("columns") for one in named):
        raise NotPlainError("it has WITH RECURSIVE, or names of columns in WITH")
    text = with_text(query.tokens)
    if text is None or len(text.bodies) != len(named) or len({one.alias.lower() for one in named}) < len(named):
        raise NotPlainError("its WITH cannot be taken apart")
    places = [(body[0].start, body[-1].end + 1) for body in text.bodies]
    texts: dict[str, str] = {}
    edits: list[tuple[Span, str]] = []
    names = [one.alias.lower() for one in named]
    open_uses = sorted((table for table in query.tree.find_all(exp.Table) if _is_one_of(table, names)), key=position)
    for name, body in [*zip(names, places, strict=True), ("", (text.rest[0].start, len(query.text)))]:
        while open_uses and position(open_uses[0]) < body[1:]:
            table = open_uses.pop(0)
            if table.name.lower() not in texts:
                raise NotPlainError("a query in its WITH reads itself, or a later one")
            alias = "" if table.alias else f" AS {quoted(table.name)}"
            edits.append((position(table), texts[table.name.lower()] + alias))
        texts[name] = edited(query.text, edits, body)
    return parse_view(texts[""])


def _is_one_of(table: exp.Table, names: Sequence[str]) -> bool:
    return not table.db and table.name.lower() in names

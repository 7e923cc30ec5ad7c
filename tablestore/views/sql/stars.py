"""Writes a query without stars: in the place of each ``*`` and ``alias.*`` are the columns that it stands for. Pure.

So a column that a table gets later does not count, and each column of a query has a name. A star stays where its
columns are not known, such as those of VALUES, or where no name would mean them, as of two columns with one name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from tablestore.views.sql.clauses import is_plain_star
from tablestore.views.sql.select_text import SelectText, Span, union_nodes, union_parts, with_text

__all__ = ["without_stars"]

_Names = tuple[str, ...] | None
"""The columns of a query or of a table; None if they are not known."""


def without_stars(
    tree: exp.Query,
    tokens: Sequence[Token],
    tables: Mapping[int, str],
    definition_of: Callable[[str], TableDefinition],
) -> list[tuple[Span, str]]:
    """Returns what takes the place of the stars in a text.

    Args:
        tree: The syntax tree of the query.
        tokens: Its tokens.
        tables: The tables that it reads, by the positions at which their names begin.
        definition_of: Returns the definition of a table.
    """
    stars = _Stars(tables, definition_of)
    if not any(token.token_type is TokenType.PIPE_GT for token in tokens):  # whose tree has stars of its own
        stars.of_query(tree, tokens, {})
    return stars.edits


@dataclass(frozen=True, slots=True)
class _Source:
    """A table, or a subquery, of FROM.

    Attributes:
        alias: Its name; empty if it has none.
        names: Its columns.
        table: ``database.table``, if it is one without a name of its own.
    """

    alias: str
    names: _Names
    table: str = ""

    def listed(self, others: Sequence[_Source]) -> _Names:
        """Returns its columns as SELECT may name them, beside those of other sources; None if it cannot."""
        if self.names is None or len({name.lower() for name in self.names}) < len(self.names):
            return None
        if self.alias:
            alone = [one.alias.lower() for one in others].count(self.alias.lower()) == 1
            return tuple(f"{quoted(self.alias)}.{quoted(name)}" for name in self.names) if alone else None
        return tuple(map(quoted, self.names)) if len(others) == 1 else None


@dataclass
class _Stars:
    tables: Mapping[int, str]
    definition_of: Callable[[str], TableDefinition]
    edits: list[tuple[Span, str]] = field(default_factory=list)

    def of_query(self, tree: exp.Expr, tokens: Sequence[Token], known: Mapping[str, _Names]) -> _Names:
        """Returns the columns of a query, and notes what its stars stand for.

        Args:
            tree: Its syntax tree.
            tokens: Its tokens.
            known: The columns of queries that WITH has given a name, in lower case.
        """
        if (clause := tree.args.get("with_")) is not None:
            text = with_text(tokens)
            if text is None or len(text.bodies) != len(clause.expressions) or clause.args.get("recursive"):
                return None
            for one, body in zip(clause.expressions, text.bodies, strict=True):
                names = self.of_query(one.this, body[1:-1], known)
                known = {**known, one.alias.lower(): None if one.args["alias"].args.get("columns") else names}
            tokens = text.rest
        if isinstance(tree, exp.Select):
            return self._of_select(SelectText(tree, tuple(tokens)), known)
        trees = [node for node in union_nodes(tree) if not isinstance(node, exp.Union)]
        parts = union_parts(tokens)
        if not isinstance(tree, exp.Union) or len(trees) != len(parts):
            return None
        before = len(self.edits)
        found = [self.of_query(branch, part, known) for branch, part in zip(trees, parts, strict=True)]
        if None in found:  # all branches have the same number of columns only with all stars, or with none
            del self.edits[before:]
            return None
        return found[0]

    def _of_select(self, select: SelectText, known: Mapping[str, _Names]) -> _Names:
        tree, clauses = select.tree, select.clauses
        if "select" not in clauses:
            return None
        sources = self._sources(select, known)
        spans = select.items("select")
        if sources is None or len(spans) != len(tree.expressions):
            return None
        found = [self._of_item(item, span, sources) for item, span in zip(tree.expressions, spans, strict=True)]
        return None if None in found else tuple(name for names in found for name in names or ())

    def _of_item(self, item: exp.Expr, span: Span, sources: Sequence[_Source]) -> _Names:
        """Returns the names of what is a column of the result, or several; None if nobody knows how Spark calls it."""
        if not item.is_star:
            return (item.alias_or_name,) if isinstance(item, exp.Alias | exp.Column) else None
        found = _meant(item, sources)
        listed = [source.listed(sources) for source in found]
        if not found or not all(listed):
            return None
        self.edits.append((span, ", ".join(text for one in listed for text in one or ())))
        return tuple(name for source in found for name in source.names or ())

    def _sources(self, select: SelectText, known: Mapping[str, _Names]) -> list[_Source] | None:
        """Returns what FROM has, and notes what the stars in it stand for.

        None if it cannot be taken apart, or if a join puts the columns in another order (USING, NATURAL).
        """
        tree = select.tree
        joins = tree.args.get("joins") or []
        parts = [part.this for part in (tree.args.get("from_"), *joins) if part is not None]
        spans = select.sources() if "from" in select.clauses else []
        if not parts or len(parts) != len(spans) or tree.args.get("laterals"):
            return None
        found = [self._source(part, span, select, known) for part, span in zip(parts, spans, strict=True)]
        if any(join.args.get("using") or join.method for join in joins):
            return None
        hidden = [False, *(join.kind in ("SEMI", "ANTI") for join in joins)]
        return [source for source, hides in zip(found, hidden, strict=True) if not hides]

    def _source(self, part: exp.Expr, span: Span, select: SelectText, known: Mapping[str, _Names]) -> _Source:
        alias = part.args.get("alias")
        renames = alias is not None and alias.args.get("columns")
        names: _Names = None
        if part.args.get("pivots") or part.args.get("joins"):
            return _Source("", None)
        if isinstance(part, exp.Subquery):
            names = self.of_query(part.this, select.within(span)[1:-1], known)
        elif isinstance(part, exp.Table) and span[0] in self.tables:
            table = self.tables[span[0]]
            names = tuple(self.definition_of(table).schema.names)
            return _Source(part.alias_or_name, None if renames else names, "" if part.alias else table)
        elif isinstance(part, exp.Table) and not part.db:
            names = known.get(part.name.lower())
        return _Source(part.alias_or_name, None if renames else names)


def _meant(star: exp.Expr, sources: Sequence[_Source]) -> list[_Source]:
    """Returns the sources whose columns a star stands for; none of one with EXCEPT and the like, or of a STRUCT."""
    if isinstance(star, exp.Star):
        return list(sources) if is_plain_star(star) else []
    if not isinstance(star, exp.Column) or not is_plain_star(star.this):
        return []
    name = [part.name.lower() for part in star.parts[:-1]]
    if len(name) == 1:
        return [source for source in sources if source.alias.lower() == name[0]]
    if any(source.alias.lower() == name[0] for source in sources):  # its column, which is a STRUCT
        return []
    return [source for source in sources if source.table.lower() == ".".join(name[-2:])]

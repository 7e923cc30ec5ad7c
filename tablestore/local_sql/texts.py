"""Functions of texts that DuckDB evaluates as Spark does. Pure.

Texts are compared and cut by their code points. Upper and lower case are not among them: Spark makes SS of ß.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from tablestore.local_sql.refusal import NotLocalError, only
from tablestore.local_sql.typed import Typed, Values, Writer, text_literal
from tablestore.local_sql.value_types import is_text

__all__ = ["OF_TEXTS"]

_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def _text(of: Values, node: exp.Expr) -> Typed:
    found = of.operand(node)
    if not is_text(found.kind):
        raise NotLocalError(f"{node.sql('spark')} in it is no STRING")
    return found


def _number(node: exp.Expr | None, least: int, whole: exp.Expr) -> int:
    """Returns a number that is written out, from which on Spark and DuckDB count alike."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        raise NotLocalError(f"it has {whole.sql('spark')}")
    if not least <= int(node.name) < 1 << 31:
        raise NotLocalError(f"it has {whole.sql('spark')}")
    return int(node.name)


def _written_out(node: exp.Expr | None, whole: exp.Expr) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise NotLocalError(f"it has {whole.sql('spark')}, whose texts are not written out")
    return str(node.this)


def _length(of: Values, node: exp.Expr) -> Typed:
    only(node, "this")
    found = _text(of, node.this)
    return Typed(f"CAST(length({found.text}) AS INTEGER)", pa.int32(), found.uses)


def _concatenated(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "expression", "expressions", "safe")
    parts = [_text(of, one) for one in node.expressions or [node.this, node.expression]]
    return Typed(f"({' || '.join(part.text for part in parts)})", pa.string(), Typed.used_by(parts))


def _like(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "expression")
    own, pattern = _text(of, node.this), node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise NotLocalError("it has LIKE with a pattern that is not written out")
    return Typed(f"({own.text} LIKE {text_literal(str(pattern.this))})", pa.bool_(), own.uses)


def _part(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "start", "length")
    found, start = _text(of, node.this), _number(node.args["start"], 1, node)
    length = node.args.get("length")
    rest = "" if length is None else f", {_number(length, 0, node)}"
    return Typed(f"substring({found.text}, {start}{rest})", pa.string(), found.uses)


def _left(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "expression")
    found = _text(of, node.this)
    return Typed(f"substring({found.text}, 1, {_number(node.expression, 0, node)})", pa.string(), found.uses)


def _trimmed(of: Values, node: exp.Expr) -> Typed:
    """Writes TRIM of spaces, and of nothing else."""
    only(node, "this", "position")
    found = _text(of, node.this)
    return Typed(f"{_TRIMS[node.text('position').upper()]}({found.text}, ' ')", pa.string(), found.uses)


def _replaced(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "expression", "replacement")
    found, old = _text(of, node.this), _written_out(node.expression, node)
    new = "" if node.args.get("replacement") is None else _written_out(node.args["replacement"], node)
    if not old:
        raise NotLocalError(f"it has {node.sql('spark')}")
    return Typed(f"replace({found.text}, {text_literal(old)}, {text_literal(new)})", pa.string(), found.uses)


def _has(of: Values, node: exp.Expr) -> Typed:
    only(node, "this", "expression")
    own, part = _text(of, node.this), _text(of, node.expression)
    name = "starts_with" if isinstance(node, exp.StartsWith) else "contains"
    return Typed(f"{name}({own.text}, {part.text})", pa.bool_(), own.uses | part.uses)


OF_TEXTS: Mapping[type[exp.Expr], Writer] = {
    exp.Length: _length,
    exp.Concat: _concatenated,
    exp.DPipe: _concatenated,
    exp.Like: _like,
    exp.Substring: _part,
    exp.Left: _left,
    exp.Trim: _trimmed,
    exp.Replace: _replaced,
    exp.StartsWith: _has,
    exp.Contains: _has,
}
"""The functions, by the nodes as which they are read."""

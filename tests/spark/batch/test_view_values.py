"""The types of expressions that the planner of views knows are those of Spark."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sqlglot import exp, parse_one

from tablestore.views.plan.nodes import Input, Scan, Term
from tablestore.views.plan.scope import Scope
from tablestore.views.plan.values import value_of
from tests.depth import Depth
from tests.tables import define

COLUMNS = {"a": "TINYINT", "h": "SMALLINT", "i": "INT", "l": "BIGINT", "s": "STRING", "t": "STRING"}
INTEGERS = "ahil"
UNKNOWN = (
    "d + 1",
    "l / 2",
    "l DIV 2",
    "abs(l)",
    "length(s)",
    "s + 1",
    "l + 0.5",
    "-s",
    "rand() + l",
)


def _scope() -> Scope:
    columns = ", ".join(f"{name} {kind}" for name, kind in {**COLUMNS, "d": "DOUBLE"}.items())
    return Scope((Input(Scan(0, "s.r", define(columns)), "r", None, False, True, True, ()),))


def _number(dice: random.Random, deep: int) -> str:
    if deep == 0 or dice.randrange(4) == 0:
        return dice.choice([*INTEGERS, *INTEGERS, "r.l", "`I`", "3", "3000000000", "0"])
    one, other = _number(dice, deep - 1), _number(dice, deep - 1)
    return dice.choice(
        [f"({one} {dice.choice('+-*')} {other})", f"{one} % ({other})", f"-({one})", f"CAST({one} AS {_to(dice)})"]
    )


def _to(dice: random.Random) -> str:
    return dice.choice(["SMALLINT", "INT", "BIGINT"])


def _text(dice: random.Random) -> str:
    one, other = dice.choice("st"), dice.choice(["t", "'it\\'s'", "'\\\\'", "''"])
    forms = [
        f"lower({one})", f"upper({one})", f"substring({one}, 2, {dice.choice('il3')})", f"concat({one}, {other})",
        f"split_part({one}, '|', 2)", f"lower(concat(s, '\\n', {other}))",
    ]  # fmt: skip
    return dice.choice(forms)


@pytest.mark.slow
def test_types_and_values_are_those_of_spark(spark: SparkSession, depth: Depth) -> None:
    """Each expression as it is written anew has the type that is expected, and the same values as the user's text."""
    dice, scope = random.Random("values of views"), _scope()
    rows = "(1, 2, 3, 4, 'A|b', 'é'), (-7, -300, 70000, -5000000000, 'a|B|c', null), (null, null, null, null, '', 'x')"
    session = spark.newSession()
    cast = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in COLUMNS.items())
    session.sql(f"SELECT {cast} FROM VALUES {rows} AS v({', '.join(COLUMNS)})").createOrReplaceTempView("r")
    session.conf.set("spark.sql.ansi.enabled", "false")  # which wraps what is too large
    texts = [_text(dice) if dice.randrange(3) == 0 else _number(dice, 2) for _ in range(depth.times(60, deep=600))]
    terms = {text: value for text in texts if isinstance(value := value_of(_parsed(text), scope), Term)}
    assert len(terms) > len(texts) // 4
    listed = [f"{text} AS v{n}, {term.text} AS w{n}" for n, (text, term) in enumerate(terms.items())]
    found = session.sql(f"SELECT {', '.join(listed)} FROM r").toArrow()
    for number, (text, term) in enumerate(terms.items()):
        written, again = found.column(f"v{number}"), found.column(f"w{number}")
        kind = pa.string() if pa.types.is_large_string(written.type) else written.type
        assert (kind, term.sources) == (term.kind, frozenset({0})), text
        assert written.equals(again), (text, term.text)


@pytest.mark.parametrize("text", [*UNKNOWN, "1 + 2", "nobody + 1", "s COLLATE UTF8_LCASE"])
def test_of_other_expressions_the_type_is_not_known(text: str) -> None:
    assert value_of(_parsed(text), _scope()) is None


def _parsed(text: str) -> exp.Expr:
    return parse_one(text, dialect="spark")

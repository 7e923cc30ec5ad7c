"""Conditions: a subquery in `where` opened a file of this machine and quoted its first line in the error."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest, NotFound
from filestore.model.schema import Schema
from filestore.reading.predicate import Condition

SCHEMA = Schema.from_arrow(
    pa.schema([("id", pa.int64()), ("t", pa.string()), ("b", pa.binary()), ("d", pa.date32()), ("ok", pa.bool_())])
)
ROWS = pl.DataFrame(
    {
        "id": [1, 2],
        "t": ["a", "it's"],
        "b": [b"\xff", b"\x01"],
        "d": [date(2026, 1, 31), date(2026, 2, 1)],
        "ok": [True, False],
    }
)

SUBQUERIES = [
    "id IN (SELECT id FROM {file})",
    "id in(select id from {file})",
    "id IN (FROM {file})",
    "id IN ((FROM {file}))",
    "id IN (/**/FROM {file})",
    "EXISTS (SELECT 1 FROM {file})",
    "NOT EXISTS (FROM {file})",
    "(SELECT max(id) FROM {file}) = 1",
    "id IN (WITH a AS (SELECT id FROM {file}) SELECT id FROM a)",
    "id = ANY (SELECT id FROM {file})",
    "id IN (VALUES (1), (2))",
    "id = 1 OR id IN (SELECT id FROM {file}) -- only this",
    "t = $$'$$ OR id IN (SELECT id FROM {file}) OR t = $$'$$",
    "t = E'\\'' OR id IN (SELECT id FROM {file}) OR t = E'\\''",
    "t = 'a\\' OR id IN (SELECT id FROM {file}) OR t = '\\'",
    "t = b'''' OR id IN (SELECT id FROM {file}) OR t = ''",
    "/* /* */ id IN (SELECT id FROM {file}) /* */ */ OR ok",
    "`t` = 'a' OR id IN (SELECT id FROM {file})",
]


@pytest.mark.parametrize("where", SUBQUERIES)
def test_a_subquery_is_refused_before_a_file_is_opened(where: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("the first line\n1\n")
    for path in (secret, tmp_path / "not-there.csv"):  # polars has an error of its own for a missing file
        with pytest.raises(InvalidRequest) as refused:
            Condition.of(where.format(file=f"read_csv('{path}')"), SCHEMA)
        assert refused.value.code == "bad-predicate"
        assert "first line" not in refused.value.message


_WORDS = """
    SELECT FROM WITH id t IN EXISTS ANY ARRAY AS AND OR NOT = ( ) ( ) , -- /* */ ' '' " ` \\ \\' $$ $a$ E' b' x' r' N'
    U&' 'a' "id" 1 # ; read_csv('/not/there.csv') (FROM
    """
_PIECES = st.sampled_from(
    [*_WORDS.split(), "SELECT id FROM read_csv('/not/there.csv')", "FROM read_csv('/not/there.csv')", "\n"]
)


@given(st.lists(_PIECES, min_size=1, max_size=14), st.sampled_from(["", " "]))
def test_no_text_makes_polars_open_a_file(pieces: list[str], between: str) -> None:
    try:
        Condition.of(between.join(pieces), SCHEMA)
    except (InvalidRequest, NotFound):
        return  # FileNotFoundError would say that it was opened


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("id = 1 -- the first", [True, False]),
        ("id = 1 /* SELECT */ OR id = 3", [True, False]),
        ("t = 'SELECT -- /* it'", [False, False]),
        ("t = 'it''s'", [False, True]),
        ("b = x'ff'", [True, False]),
        ("ok XOR id = 2", [True, True]),
        ("`id` = 1", [True, False]),
        ("EXTRACT(YEAR FROM d) = 2026 AND TRIM(BOTH 'x' FROM t) = 'a'", [True, False]),
        ("d = '2026-01-31'", [True, False]),
        ("d = DATE'2026-01-31'", [True, False]),
        ("d IN ('2026-01-31') /* a day */", [True, False]),
        ("t ~* 'A' AND t ^@ 'a' AND id <=> 1", [True, False]),
        ("CASE WHEN id = 1 THEN ok ELSE NOT ok END", [True, True]),
        (f"id IN ({', '.join(str(number) for number in range(2, 3000))})", [False, True]),
        (f"t IN ({','.join(repr(str(number)) for number in range(100))}, 'it''s')", [False, True]),
        pytest.param(" OR ".join(f"id = {number}" for number in range(2, 1100)), [False, True], marks=pytest.mark.slow),
        ("(" * 40 + "id = 1" + ")" * 40, [True, False]),
    ],
)
def test_what_conditions_may_say(where: str, wanted: list[bool]) -> None:
    assert Condition.of(where, SCHEMA).wanted(ROWS).to_list() == wanted


@pytest.mark.parametrize(
    "where",
    [
        "",
        " ",
        "-- nothing",
        "id = 1_000",
        "id = 1 x",
        "id = 1;",
        "id = $1",
        "t = 'a",
        "(" * 2000 + "id = 1" + ")" * 2000,
    ],
)
def test_what_polars_reads_as_something_else_is_refused(where: str) -> None:
    """``id = 1_000`` was ``id = 1`` under another name."""
    with pytest.raises(InvalidRequest) as refused:
        Condition.of(where, SCHEMA)
    assert refused.value.code == "bad-predicate"

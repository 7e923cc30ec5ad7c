"""How a text is split into statements, and what a statement does to its session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from tablestore.shell.statements import changes_session, split, used_database


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", ()),
        (" ; ;; ", ()),
        ("-- nothing; at all", ()),
        ("SELECT 1", ("SELECT 1",)),
        ("SELECT 1;", ("SELECT 1",)),
        ("SELECT 1; SELECT 2", ("SELECT 1", "SELECT 2")),
        ("SELECT 'a;b'; SELECT 2", ("SELECT 'a;b'", "SELECT 2")),
        ('SELECT "a;\'b"; x', ('SELECT "a;\'b"', "x")),
        ("SELECT 'it\\'s;'; x", ("SELECT 'it\\'s;'", "x")),
        ("SELECT 'it''s;'; x", ("SELECT 'it''s;'", "x")),
        ("SELECT r'\\'; x", ("SELECT r'\\'", "x")),
        ("SELECT `a;b``;c`; x", ("SELECT `a;b``;c`", "x")),
        ("SELECT 1 -- one; two\n, 2; x", ("SELECT 1 -- one; two\n, 2", "x")),
        ("SELECT /* ; /* ; */ ; */ 1; x", ("SELECT /* ; /* ; */ ; */ 1", "x")),
        ("CALL lake.sys.compact(';'); x", ("CALL lake.sys.compact(';')", "x")),
        ("SHOW TABLES LIKE 'a;b'; x", ("SHOW TABLES LIKE 'a;b'", "x")),
        ("x; -- the end", ("x",)),
        ("BEGIN SELECT 1; SELECT 2; END; x", ("BEGIN SELECT 1; SELECT 2; END", "x")),
        (
            "BEGIN IF a THEN SELECT CASE WHEN b THEN 1 END; END IF; BEGIN c; END; END; x",
            ("BEGIN IF a THEN SELECT CASE WHEN b THEN 1 END; END IF; BEGIN c; END; END", "x"),
        ),
        ("SELECT CASE WHEN a THEN 1 END; x", ("SELECT CASE WHEN a THEN 1 END", "x")),
    ],
)
def test_statements_end_at_semicolons(text: str, statements: tuple[str, ...]) -> None:
    assert split(text).all == statements


@pytest.mark.parametrize("text", ["SELECT 'a;", "SELECT `a;", 'SELECT 1; SELECT "b'])
def test_an_open_quote_is_an_error(text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        split(text)
    assert raised.value.code == "bad-statement"


def test_what_follows_the_last_semicolon_is_the_rest() -> None:
    found = split("SELECT 1; SELECT\n 2")
    assert (found.statements, found.rest) == (("SELECT 1",), "SELECT\n 2")
    assert split("SELECT 1; -- remark").rest == ""


WORDS = st.lists(
    st.sampled_from(["SELECT", "a", "1", "','", "';'", '"x;y"', "`b;c`", "/* ; */", "-- ;\n", "(", ")"]), min_size=1
)


@given(st.lists(WORDS, max_size=4))
def test_what_is_joined_is_split_again(statements: list[list[str]]) -> None:
    texts = [" ".join(["x", *words]).strip() for words in statements]
    assert split("\n;\n".join(texts)).all == tuple(texts)  # a statement may end with a remark


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("USE shop", ("shop",)),
        ("use lake.shop", ("lake", "shop")),
        ("USE DATABASE `my shop`", ("my shop",)),
        ("USE", None),
        ("USE a b", None),
        ("SELECT 1", None),
        ("'", None),
    ],
)
def test_use_names_a_database(statement: str, name: tuple[str, ...] | None) -> None:
    assert used_database(statement) == name


@pytest.mark.parametrize(
    ("statement", "changes"),
    [
        ("SELECT 1", False),
        ("INSERT INTO t VALUES (1)", False),
        ("CREATE VIEW v AS SELECT 1", False),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1", True),
        ("create temp view v as select 1", True),
        ("SET spark.sql.ansi.enabled = false", True),
        ("USE shop", True),
        ("CACHE TABLE t", True),
        ("DECLARE x = 1", True),
        ("", False),
    ],
)
def test_which_statements_change_what_later_ones_mean(statement: str, changes: bool) -> None:
    assert changes_session(statement) is changes

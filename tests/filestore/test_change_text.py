"""Changes in SQL's words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from filestore.model.change_text import CHANGE_FORMS, parse_change
from filestore.model.changes import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetNullable,
    SetOption,
    UnsetOption,
    WidenColumn,
)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("ADD COLUMN n INT", AddColumn("n", pa.int32())),
        ("add  column n DECIMAL(10, 2) NOT NULL", AddColumn("n", pa.decimal128(10, 2), nullable=False)),
        (
            "ADD COLUMN n STRING COMMENT 'comes after x' FIRST",
            AddColumn("n", pa.string(), comment="comes after x", first=True),
        ),
        (
            "ADD COLUMN `first` STRUCT<a: INT> AFTER `b``c`",
            AddColumn("first", pa.struct([("a", pa.int32())]), after="b`c"),
        ),
        ("ADD COLUMN after INT", AddColumn("after", pa.int32())),
        (" DROP COLUMN a.b ", DropColumn("a.b")),
        ("RENAME COLUMN a TO `to`", RenameColumn("a", "to")),
        ("ALTER COLUMN a TYPE DECIMAL(12, 2)", WidenColumn("a", "DECIMAL(12, 2)")),
        ("ALTER COLUMN a FIRST", MoveColumn("a")),
        ("ALTER COLUMN a AFTER b", MoveColumn("a", "b")),
        ("alter column a drop not null", SetNullable("a")),
        (r"ALTER COLUMN a COMMENT 'it''s \'so\' \\'", SetComment("it's 'so' \\", "a")),
        ("ALTER COLUMN a COMMENT ''", SetComment(None, "a")),
        ("COMMENT 'all of\nit'", SetComment("all of\nit")),
        ("SET target-file-size = 1 mb", SetOption("target-file-size", "1 mb")),
        ("SET target-file-size='1 mb'", SetOption("target-file-size", "1 mb")),
        ("SET ('target-file-size' = '1 mb')", SetOption("target-file-size", "1 mb")),
        ("set tblproperties('target-file-size'='1 mb')", SetOption("target-file-size", "1 mb")),
        ("UNSET target-file-size", UnsetOption("target-file-size")),
    ],
)
def test_what_is_read(text: str, change: Change) -> None:
    assert parse_change(text) == change


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-change"),
        ("DROP COLUMN", "bad-change"),
        ("DROP COLUMN a b", "bad-change"),
        ("DROP COLUMN a; DROP COLUMN b", "bad-change"),
        ("ADD COLUMN a INT, b INT", "bad-change"),
        ("ADD COLUMN a", "bad-column-list"),
        ("COMMENT 'open", "bad-change"),
        ("SET bucket", "bad-change"),
        ("COMMENT '\0'", "bad-text"),
    ],
)
def test_what_is_not(text: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_change(text)
    assert caught.value.code == code


def test_every_form_is_shown() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_change("MODIFY a")
    assert all(form in caught.value.message for form in CHANGE_FORMS)

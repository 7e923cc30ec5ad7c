"""Parses changes of a table in SQL, as they follow ``ALTER TABLE name`` in Spark (FORMAT.md section 3.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from filestore.errors import InvalidRequest
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
from filestore.model.names import unquoted
from filestore.model.sql import parse_columns
from filestore.model.text import check_text

__all__ = ["CHANGE_FORMS", "parse_change", "parse_changes"]

CHANGE_FORMS = (
    "ADD COLUMN name TYPE [NOT NULL] [COMMENT 'text'] [FIRST | AFTER other]",
    "DROP COLUMN name",
    "RENAME COLUMN name TO new_name",
    "ALTER COLUMN name TYPE WIDER_TYPE",
    "ALTER COLUMN name FIRST",
    "ALTER COLUMN name AFTER other",
    "ALTER COLUMN name DROP NOT NULL",
    "ALTER COLUMN name COMMENT 'text'",
    "COMMENT 'text'",
    "SET option = value",
    "UNSET option",
)
"""The forms that `parse_change` reads."""

_NAME = r"(`(?:[^`]|``)+`|[^\s`']+)"
_TEXT = r"('(?:[^'\\]|\\.|'')*')"
_PLACE = re.compile(rf"(.*?)\s+(?:FIRST|AFTER\s+{_NAME})", re.IGNORECASE | re.DOTALL)


def parse_change(text: str) -> Change:
    """Parses one change; see `CHANGE_FORMS`. An empty comment removes the comment.

    Raises:
        InvalidRequest: ``bad-change``: it has none of the forms; ``bad-text``; or its column cannot be read.
    """
    check_text("the change", text)
    for pattern, build in _CLAUSES:
        if (match := pattern.fullmatch(text.strip())) is not None:
            return build(*match.groups())
    raise InvalidRequest(
        f"cannot read the change {text!r}: write {'; '.join(CHANGE_FORMS)}",
        code="bad-change",
    )


def parse_changes(given: Sequence[Change | str]) -> list[Change]:
    """Parses the changes that are texts and returns all of them as values; raises as `parse_change`."""
    return [parse_change(change) if isinstance(change, str) else change for change in given]


def _added(clause: str) -> Change:
    place = _PLACE.fullmatch(clause)
    columns = parse_columns(place[1] if place else clause).columns
    if len(columns) != 1:
        raise InvalidRequest(f"cannot read the column {clause!r}: add one column in one change", code="bad-change")
    (column,) = columns
    after = unquoted(place[2]) if place and place[2] else None
    first = place is not None and after is None
    return AddColumn(column.name, column.type, column.nullable, column.comment, after, first)


def _text(quoted: str) -> str:
    return re.sub(r"\\(.)|''", lambda match: match[1] or "'", quoted[1:-1], flags=re.DOTALL)


def _clause(form: str, build: Callable[..., Change]) -> tuple[re.Pattern[str], Callable[..., Change]]:
    pattern = form.replace(" ", r"\s+").replace("<name>", _NAME).replace("<text>", _TEXT)
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), build


_CLAUSES = (
    _clause(r"ADD COLUMN (.+)", _added),
    _clause("DROP COLUMN <name>", lambda name: DropColumn(unquoted(name))),
    _clause("RENAME COLUMN <name> TO <name>", lambda name, new: RenameColumn(unquoted(name), unquoted(new))),
    _clause("ALTER COLUMN <name> TYPE (.+)", lambda name, kind: WidenColumn(unquoted(name), kind)),
    _clause("ALTER COLUMN <name> FIRST", lambda name: MoveColumn(unquoted(name))),
    _clause("ALTER COLUMN <name> AFTER <name>", lambda name, after: MoveColumn(unquoted(name), unquoted(after))),
    _clause("ALTER COLUMN <name> DROP NOT NULL", lambda name: SetNullable(unquoted(name))),
    _clause("ALTER COLUMN <name> COMMENT <text>", lambda name, text: SetComment(_text(text) or None, unquoted(name))),
    _clause("COMMENT <text>", lambda text: SetComment(_text(text) or None)),
    _clause(  # Spark's form: SET TBLPROPERTIES ('name' = 'value')
        r"SET(?: TBLPROPERTIES)?\s*\(\s*<text>\s*=\s*<text>\s*\)",
        lambda name, value: SetOption(_text(name), _text(value)),
    ),
    _clause(
        r"SET ([^\s=]+)\s*=\s*(.*)", lambda name, value: SetOption(name, _text(value) if _quoted(value) else value)
    ),
    _clause(r"UNSET ([^\s=]+)", UnsetOption),
)


def _quoted(value: str) -> bool:
    return re.fullmatch(_TEXT, value, re.DOTALL) is not None

"""The doctor says what is wrong with a definition, alone and against the version before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from filestore.checks.definitions import check_definition_step
from filestore.checks.report import Findings, Invariant
from filestore.delta.log import Commit
from filestore.model.definition import COLUMN_MAPPING, TYPE_WIDENING, TableDefinition
from filestore.model.schema import Schema
from tests.tables import define

PLAIN = define("id BIGINT, v INT", ["id"])
EVERYTHING = frozenset({COLUMN_MAPPING, TYPE_WIDENING})


def with_columns(*changes: dict[str, Any], **definition: Any) -> TableDefinition:
    """The table with numbered columns, each of them changed."""
    columns = [replace(c, **new) for c, new in zip(PLAIN.schema.numbered(), changes, strict=True)]
    return replace(PLAIN, **{"last_id": 2, "schema": Schema(tuple(columns))} | definition)


def problems(before: TableDefinition | None, after: TableDefinition) -> dict[Invariant, str]:
    """The first problem of each kind, if the commit adds all features."""
    findings = Findings()
    protocol = {"readerFeatures": sorted(EVERYTHING), "writerFeatures": sorted(EVERYTHING)}
    check_definition_step(findings, before, after, Commit(7, ({"protocol": protocol},)))
    return {finding.code: finding.message for finding in findings}


def test_a_numbered_table_has_no_problems() -> None:
    assert problems(None, PLAIN) == problems(PLAIN, PLAIN) == problems(PLAIN, with_columns({}, {})) == {}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (None, with_columns({}, {"id": None}), "has the ids of some columns only"),
        (
            None,
            with_columns({"stored_name": "id"}, {}, features=EVERYTHING),
            "has column mapping for some columns, or without its feature",
        ),
        (
            None,
            with_columns({"stored_name": "id"}, {"stored_name": "v"}),
            "has column mapping for some columns, or without its feature",
        ),
        (
            None,
            with_columns({"stored_name": "v"}, {"stored_name": "v"}, features=EVERYTHING),
            "has two columns of the same name in files",
        ),
        (
            None,
            with_columns({}, {"former_types": (pa.int16(),)}),
            "has widened columns without the feature of type widening",
        ),
        (PLAIN, replace(PLAIN, schema=Schema(PLAIN.schema.columns[::-1])), "changes columns without their ids"),
        (
            with_columns({}, {}, last_id=5),
            with_columns({}, {}, last_id=4),
            "lowers the last column id from 5 to 4",
        ),
        (
            with_columns({}, {}, features=frozenset({TYPE_WIDENING})),
            with_columns({}, {}),
            f"loses the feature {TYPE_WIDENING!r}",
        ),
        (
            replace(with_columns({}, {}, last_id=3), schema=Schema(PLAIN.schema.numbered().columns[:1])),
            with_columns({}, {}, last_id=3),
            "gives column 'v' the id 2, which another column had",
        ),
    ],
)
def test_a_wrong_definition_is_named(before: TableDefinition | None, after: TableDefinition, problem: str) -> None:
    assert problems(before, after)[Invariant.COLUMN_ID] == f"version 7 {problem}"

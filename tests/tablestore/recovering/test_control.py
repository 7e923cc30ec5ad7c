"""The control record of a commit whose rows are not in the log is read from its entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from filestore.delta.log import Commit
from tablestore.recovering.control import control_of
from tests.tables import create, define, write


@pytest.mark.parametrize(
    ("operation", "partitions", "keyed", "expected"),
    [
        ("WRITE", None, True, None),
        ("OVERWRITE", None, True, {"control": "overwrite"}),
        ("OVERWRITE", [{"p": "x"}], True, {"control": "overwrite", "partitions": [{"p": "x"}]}),
        ("OVERWRITE", [{"p": str(n)} for n in range(1001)], True, {"control": "overwrite"}),
        ("DROP PARTITION", [{"p": "x"}], True, {"control": "drop partition", "partitions": [{"p": "x"}]}),
        ("ROLLBACK", None, True, None),
        ("ROLLBACK", None, False, {"control": "overwrite"}),
    ],
)
def test_the_record_that_a_log_gets(
    folder: Path, operation: str, partitions: Any, keyed: bool, expected: dict[str, Any] | None
) -> None:
    store = create(folder / "t", define("id BIGINT, p STRING", ["id", "p"], ["p"]))
    version = write(store, [{"id": 1, "p": "x"}], overwrite=True).snapshot.version
    first, *others = store.required(version).actions
    named = {} if partitions is None else {"partitions": json.dumps(partitions)}
    info = first["commitInfo"] | {"operation": operation, "operationParameters": named}
    assert control_of(Commit(version, ({"commitInfo": info}, *others)), keyed=keyed) == expected

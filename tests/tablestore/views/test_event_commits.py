"""Which files have new events, by the actions of commits alone."""

from __future__ import annotations

import pytest

from filestore.delta.actions import Action, add_action, remove_action
from filestore.delta.log import Commit
from filestore.errors import InvalidRequest
from filestore.model.files import DataFile, Slot
from filestore.model.snapshot import Operation
from tablestore.views.events.event_commits import inserted_files


def file(path: str) -> DataFile:
    return DataFile(path, Slot((), 0), 10, 1, 0, '{"numRecords":1}', 0)


def commit(operation: Operation, add: str = "", remove: str = "", version: int = 7) -> Commit:
    info: Action = {
        "commitInfo": {
            "operation": str(operation),
            "inCommitTimestamp": 1,
            "operationMetrics": {},
            "tablestore": {"commitId": "c", "transactions": []},
        }
    }
    changed = operation.changes_data
    removes = [remove_action(file(path), 1, data_change=changed) for path in remove]
    return Commit(version, (info, *removes, *(add_action(file(path), data_change=changed) for path in add)))


def found(*commits: Commit, keep: bool = False) -> list[str]:
    return [one.path for one in inserted_files(commits, (), keep_removed=keep)]


def test_writes_insert_and_other_operations_move_rows_or_none() -> None:
    assert found() == []
    assert found(commit(Operation.WRITE, "ab"), commit(Operation.WRITE), commit(Operation.WRITE, "c")) == [
        "a",
        "b",
        "c",
    ]
    for operation in Operation:
        if not operation.changes_data:
            assert found(commit(operation, "x", "ab")) == []
    assert found(commit(Operation.OVERWRITE, "a")) == ["a"], "it has replaced nothing"


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (commit(Operation.DROP_PARTITION, remove="a"), "events-removed"),
        (commit(Operation.OVERWRITE, remove="a"), "events-removed"),
        (commit(Operation.ROLLBACK, remove="a"), "events-removed"),
        (commit(Operation.ROLLBACK, add="a"), "events-changed"),
        (commit(Operation.OVERWRITE, "a", "b"), "events-changed"),
        (commit(Operation.WRITE, "a", "a"), "events-changed"),
    ],
)
def test_commits_that_do_not_only_insert(entry: Commit, code: str) -> None:
    with pytest.raises(InvalidRequest, match="version 7 of the table of events") as caught:
        found(commit(Operation.WRITE, "x"), entry)
    assert caught.value.code == code
    if code == "events-removed":
        assert found(commit(Operation.WRITE, "a"), entry, keep=True) == ["a"]
    else:
        with pytest.raises(InvalidRequest):
            found(entry, keep=True)

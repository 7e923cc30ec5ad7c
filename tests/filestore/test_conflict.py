"""The conflict rules, row by row of the table in FORMAT.md section 6. No storage anywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from filestore.commit.conflict import Clear, Done, Rebase, judge
from filestore.commit.plan import commit_info, plan_actions
from filestore.commit.proposal import AppVersion, LogChanges, NewLog, Proposal
from filestore.delta.actions import (
    RUN_DOMAIN,
    Action,
    add_action,
    domain_action,
    metadata_action,
    no_domain_action,
    protocol_action,
    remove_action,
    run_action,
    tombstones_action,
    txn_action,
)
from filestore.delta.by_slot import BySlot
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Conflict, Corrupt
from filestore.model.files import DataFile, DeletionVector, PendingRun, Slot, Tombstones
from filestore.model.log_range import LogRange, LogState, LogTransaction
from filestore.model.partition_set import ALL_PARTITIONS, NO_PARTITIONS, PartitionSet
from filestore.model.snapshot import Operation
from filestore.model.table_options import TableOptions
from tests.proposals import propose
from tests.tables import define, paths

A, B = Slot((("p", "x"),), 0), Slot((("p", "x"),), 1)
OTHER_PARTITION = Slot((("p", None),), 0)
DEFINITION = define("id BIGINT, p STRING", ["id", "p"], ["p"], bucket=2)


def data_file(name: str, slot: Slot = A, rows: int = 10, dead: int = 0) -> DataFile:
    vector = DeletionVector("u", f"{name:>20}", 1, 40, dead) if dead else None
    stats = f'{{"numRecords":{rows},"minValues":{{}},"maxValues":{{}},"nullCount":{{}}}}'
    return DataFile(f"{name}.parquet", slot, 100, rows, 1, stats, 0, "[1]", "[9]", vector)


def state(*files: DataFile, version: int = 5, **more: Any) -> TableState:
    return TableState(version, 1000, "table", DEFINITION, BySlot(files), **more)


def proposal(operation: Operation = Operation.WRITE, **more: Any) -> Proposal:
    return propose(operation, "mine", 4, **more)


def commit(*actions: Action, commit_id: str = "theirs", version: int = 5) -> Commit:
    info = commit_info(Proposal(Operation.WRITE, commit_id, version - 1), version - 1, 999)
    return Commit(version, (info, *actions))


def adds(slot: Slot) -> Commit:
    return commit(add_action(data_file("new", slot), data_change=True))


def removes(slot: Slot) -> Commit:
    return commit(remove_action(data_file("old", slot), 1, data_change=True))


UPSERT = proposal(slots=frozenset([A]))
APPEND = proposal(adds=(data_file("mine"),))
OVERWRITE = proposal(Operation.OVERWRITE, replaces=ALL_PARTITIONS)
COMPACTION = proposal(Operation.COMPACT, slots=frozenset([A]), removes=(data_file("old"),))


@pytest.mark.parametrize("between", [adds, removes], ids=["adds", "removes"])
@pytest.mark.parametrize(
    ("mine", "slot", "verdict"),
    [
        (UPSERT, A, Rebase(frozenset([A]), frozenset([A]))),
        (UPSERT, B, Clear()),
        (UPSERT, OTHER_PARTITION, Clear()),
        (APPEND, A, Clear()),
        (OVERWRITE, A, Clear()),
        (COMPACTION, A, Rebase(frozenset([A]), frozenset([A]))),
        (COMPACTION, B, Clear()),
        (proposal(slots=frozenset([A, B])), B, Rebase(frozenset([B]), frozenset([B]))),
    ],
    ids=[
        "upsert-its-slot",
        "upsert-another",
        "upsert-another-partition",
        "append",
        "overwrite",
        "compaction-its-slot",
        "compaction-another",
        "upsert-of-two",
    ],
)
def test_commits_in_between_in_a_slot(mine: Proposal, slot: Slot, verdict: object, between: Any) -> None:
    assert judge(mine, state(), [between(slot)]) == verdict


def test_a_compaction_in_between_changed_files_and_no_rows() -> None:
    compaction = commit(
        add_action(data_file("new", A), data_change=False), remove_action(data_file("old", A), 1, data_change=False)
    )
    assert judge(UPSERT, state(), [compaction]) == Rebase(frozenset([A]))
    assert judge(UPSERT, state(), [compaction, adds(A)]) == Rebase(frozenset([A]), frozenset([A]))


def test_tombstones_in_between_matter_to_keys_and_those_of_a_compaction_to_whole_tables() -> None:
    action = tombstones_action(Tombstones("_runs/t.parquet", A, 1, 1, 1, "{}", 0, "[1]", "[1]"))
    write = commit(action)
    info = commit_info(Proposal(Operation.COMPACT, "theirs", 4), 4, 999)
    compaction = Commit(5, (info, action))
    everything = proposal(Operation.ALTER, all_slots=True)
    assert judge(UPSERT, state(), [write]) == Rebase(frozenset([A]), frozenset([A]))
    assert judge(UPSERT, state(), [compaction]) == Clear(), "the same keys are deleted"
    assert judge(everything, state(), [write]) == Rebase(frozenset([A]), frozenset([A]))
    assert judge(everything, state(), [compaction]) == Rebase(frozenset([A]))


def test_a_run_in_between_changes_rows_that_a_drop_has_chosen() -> None:
    run = PendingRun("_runs/r.parquet", A, 1, 1, 1, "[1]", "[1]", 5)
    added, folded = commit(run_action(run)), commit(no_domain_action(RUN_DOMAIN + run.id, "{}"))
    drop = proposal(Operation.DROP_PARTITION, slots=frozenset([A]), replaces=PartitionSet.of([A.partition]))
    assert judge(drop, state(), [added]) == Rebase(frozenset([A]), frozenset([A]))
    assert judge(drop, state(), [folded]) == Clear()
    assert judge(replace(drop, premises=proposal(slots=frozenset([B])).premises), state(), [added]) == Clear()


@pytest.mark.parametrize("mine", [UPSERT, APPEND, OVERWRITE, COMPACTION])
def test_nothing_in_between(mine: Proposal) -> None:
    assert judge(mine, state(), []) == Clear()
    assert judge(mine, state(), [commit()]) == Clear()


@pytest.mark.parametrize("mine", [UPSERT, APPEND, OVERWRITE, COMPACTION])
@pytest.mark.parametrize(
    "action", [metadata_action(DEFINITION, "table", 1), protocol_action()], ids=["metadata", "protocol"]
)
def test_a_new_schema_fails_all(mine: Proposal, action: Action) -> None:
    with pytest.raises(Conflict) as caught:
        judge(mine, state(), [commit(action)])
    assert caught.value.code == "metadata-changed"


@pytest.mark.parametrize("mine", [UPSERT, APPEND, OVERWRITE, COMPACTION])
def test_the_same_commit_is_done(mine: Proposal) -> None:
    assert judge(mine, state(), [adds(A), commit(commit_id="mine", version=6), adds(A)]) == Done(6)


@pytest.mark.parametrize(("stored", "number", "done"), [(7, 7, True), (8, 7, True), (6, 7, False), (None, 0, False)])
def test_a_number_of_an_app_is_committed_once(stored: int | None, number: int, done: bool) -> None:
    apps = {} if stored is None else {"query": stored}
    mine = proposal(app=AppVersion("query", number))
    verdict = judge(mine, state(app_versions=apps), [])
    assert verdict == (Done(None) if done else Clear())
    assert judge(proposal(app=AppVersion("another", 0)), state(app_versions=apps), []) == Clear()


def test_the_version_of_an_app_number_is_known_if_it_was_committed_in_between() -> None:
    mine = proposal(app=AppVersion("query", 7))
    between = [commit(txn_action("other", 7, 1)), commit(txn_action("query", 7, 1), version=6)]
    assert judge(mine, state(app_versions={"query": 7}), between) == Done(6)


def test_done_counts_more_than_a_new_schema() -> None:
    done = commit(metadata_action(DEFINITION, "table", 1), commit_id="mine")
    assert judge(UPSERT, state(), [done]) == Done(5)


def fence_of(*fenced: str, version: int = 5) -> Commit:
    info = commit_info(propose(Operation.FENCE, "fence", 4, fenced=frozenset(fenced)), version - 1, 999)
    return Commit(version, (info,))


@pytest.mark.parametrize("mine", [UPSERT, APPEND, OVERWRITE, COMPACTION])
def test_a_fence_refuses_the_commit_that_it_names(mine: Proposal) -> None:
    assert judge(mine, state(), [fence_of("others", "more")]) == Clear()
    with pytest.raises(Conflict, match="version 6 fences commit mine") as caught:
        judge(mine, state(), [commit(), fence_of("others", "mine", version=6)])
    assert caught.value.code == "fenced" and not caught.value.again


@pytest.mark.parametrize(
    ("mine", "again"),
    [
        (proposal(app=AppVersion("job", 1)), True),
        (proposal(Operation.REPUBLISH, changes_no_row=True), True),
        (proposal(changes_no_row=True), True),
        (UPSERT, False),
        (OVERWRITE, False),
        (proposal(Operation.ROLLBACK), False),
    ],
)
def test_what_was_fenced_begins_again_only_if_it_cannot_be_done_twice(mine: Proposal, again: bool) -> None:
    with pytest.raises(Conflict) as caught:
        judge(mine, state(), [fence_of("mine")])
    assert caught.value.again is again


def test_a_commit_before_its_fence_is_done() -> None:
    assert judge(UPSERT, state(), [commit(commit_id="mine"), fence_of("mine", version=6)]) == Done(5)


def test_a_fence_of_the_lease_under_which_records_were_written() -> None:
    mine = proposal(Operation.REPUBLISH, leases=frozenset(["lost"]))
    assert judge(mine, state(), [fence_of("other")]) == Clear()
    with pytest.raises(Conflict, match="fences"):
        judge(mine, state(), [fence_of("lost")])


def test_a_fence_that_others_have_written_is_enough() -> None:
    mine = proposal(Operation.FENCE, fenced=frozenset(["a", "b"]))
    assert judge(mine, state(), [fence_of("a"), fence_of("b", version=6)]) == Clear(), "no version has both"
    assert judge(mine, state(), [fence_of("a"), fence_of("a", "b", "c", version=6)]) == Done(6)


@pytest.mark.parametrize("fences", [False, True])
def test_a_fence_requires_writers_that_know_fences(fences: bool) -> None:
    before = state(protocol=protocol_action(fences=fences)["protocol"])
    actions = plan_actions(proposal(Operation.FENCE, fenced=frozenset(["b", "a"])), before, 2000)
    assert actions[0]["commitInfo"]["tablestore"]["fenced"] == ["a", "b"]
    assert kinds(actions) == (["commitInfo"] if fences else ["commitInfo", "protocol"])
    assert before.next(6, actions).fences


def kinds(actions: list[Action]) -> list[str]:
    return [next(iter(action)) for action in actions]


def test_a_commit_begins_with_its_info_and_time_grows() -> None:
    for now, expected in ((5000, 5000), (1000, 1001), (-(10**9), 1001)):
        (info,) = plan_actions(proposal(metrics={"rows_written": 3}), state(), now)
        assert info["commitInfo"]["inCommitTimestamp"] == expected
        assert info["commitInfo"]["tablestore"] == {"commitId": "mine", "transactions": []}
        assert info["commitInfo"]["operationMetrics"] == {"rows_written": "3"}


def test_vectors_are_a_remove_of_the_old_and_an_add_of_the_new() -> None:
    stored = data_file("a", dead=2)
    grown = stored.with_vector(DeletionVector("u", "x" * 20, 1, 41, 3))
    actions = plan_actions(proposal(vectors=(grown,)), state(stored), 2000)
    assert kinds(actions) == ["commitInfo", "remove", "add"]
    assert actions[1]["remove"]["deletionVector"]["cardinality"] == 2
    assert actions[2]["add"]["deletionVector"]["cardinality"] == 3
    assert '"tightBounds":false' in actions[2]["add"]["stats"]
    after = state(stored).next(6, actions)
    assert list(after.files) == [grown]


def test_an_overwrite_removes_what_is_there_when_it_commits() -> None:
    actions = plan_actions(
        proposal(Operation.OVERWRITE, replaces=ALL_PARTITIONS, adds=(data_file("n"),)),
        state(data_file("a"), data_file("b", B)),
        1,
    )
    assert kinds(actions) == ["commitInfo", "remove", "remove", "add"]
    assert paths(state(data_file("a"), data_file("b", B)).next(6, actions)) == {"n.parquet"}


@pytest.mark.parametrize("more", [{"removes": (data_file("gone"),)}, {"vectors": (data_file("gone", dead=1),)}])
def test_a_file_that_is_gone_is_a_conflict(more: dict[str, Any]) -> None:
    with pytest.raises(Conflict, match=r"gone\.parquet left the table") as caught:
        plan_actions(proposal(**more), state(data_file("a")), 1)
    assert caught.value.code == "file-gone"


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.OVERWRITE, Operation.COMPACT])
def test_only_a_compaction_leaves_the_data_as_it_is(operation: Operation) -> None:
    actions = plan_actions(
        proposal(operation, adds=(data_file("n"),), removes=(data_file("a"),)), state(data_file("a")), 1
    )
    changes = {action[kind]["dataChange"] for action, kind in zip(actions[1:], kinds(actions)[1:], strict=True)}
    assert changes == {operation is not Operation.COMPACT}


def test_offsets_are_repeated_and_never_go_back() -> None:
    before = state(app_versions={"tablestore.log.offset.0": 10, "tablestore.log.offset.1": 20, "query": 3})
    one = LogTransaction("t1", (LogRange(0, 10, 15, 5), LogRange(1, 5, 9, 2)))
    mine = proposal(transactions=(one,), app=AppVersion("query", 4))
    after = before.next(6, plan_actions(mine, before, 1))
    assert after.log.offsets == {0: 15, 1: 20}
    assert after.app_versions["query"] == 4
    assert [t.id for t in after.log.open] == ["t1"]


def test_ended_transactions_leave_the_list_and_nothing_is_written_when_nothing_changes() -> None:
    one, two = LogTransaction("t1", (LogRange(0, 0, 1, 1),), 7, 2), LogTransaction("t2", (LogRange(0, 1, 2, 1),))
    before = state().next(6, plan_actions(proposal(new_log=NewLog({"topic": "x"}, {0: 0})), state(), 1))
    first = before.next(7, plan_actions(proposal(transactions=(one,)), before, 1))
    assert first.log.open == (one,)
    second = first.next(8, plan_actions(proposal(transactions=(two,), ended=frozenset(["t1"])), first, 1))
    assert second.log.open == (two,)
    assert (second.log.identity, second.log.begins) == ({"topic": "x"}, 6)
    assert "domainMetadata" not in kinds(plan_actions(proposal(ended=frozenset(["t1"])), second, 1))


@pytest.mark.parametrize("consistency", ["transactional", "eventual"])
def test_a_new_log_has_offsets_of_its_own_and_nothing_open(consistency: str) -> None:
    former = {"identity": {"topic": "x"}, "open": [LogTransaction("t", ()).to_json()], "repaired": {"0": 9}}
    before = replace(
        state(
            app_versions={"tablestore.log.offset.0": 10, "query": 3},
            domains={"tablestore.log": json.dumps(former)},
        ),
        definition=replace(DEFINITION, options=TableOptions.parse({"log.consistency": consistency})),
    )
    actions = plan_actions(proposal(Operation.ALTER, new_log=NewLog({"topic": "y"}, {0: 2})), before, 1)
    after = before.next(6, actions)
    repaired = {0: 2} if consistency == "eventual" else {}
    assert after.log == LogState({0: 2}, {"topic": "y"}, (), repaired, begins=6)
    assert Commit(6, tuple(actions)).begins_log and not Commit(7, tuple(actions)).begins_log


def test_older_writers_carry_on_with_which_version_the_log_begins() -> None:
    """They write the members of the log's domain that they know, and no other domain."""
    begun = state().next(6, plan_actions(proposal(Operation.ALTER, new_log=NewLog({"topic": "y"}, {0: 2})), state(), 1))
    one = LogTransaction("t1", (LogRange(0, 2, 3, 1),))
    after = begun
    for version in (7, 8):
        written = plan_actions(replace(proposal(transactions=(one,)), base_version=version - 1), after, 1)
        older = [a for a in written if a.get("domainMetadata", {}).get("domain") != "tablestore.log"]
        older.append(domain_action("tablestore.log", {"identity": {"topic": "y"}, "open": [one.to_json()]}))
        after = after.next(version, older)
        assert (after.log.begins, Commit(version, tuple(older)).begins_log) == (6, False)


def test_where_the_log_begins_moves_to_a_domain_of_its_own() -> None:
    """A version of 2026-11-28 had it in that of the log."""
    stored = json.dumps({"identity": {"topic": "y"}, "open": [], "begins": 5})
    before = state(domains={"tablestore.log": stored})
    assert before.log.begins == 5
    assert Commit(5, (domain_action("tablestore.log", json.loads(stored)),)).begins_log
    one = LogTransaction("t1", (LogRange(0, 2, 3, 1),))
    actions = plan_actions(proposal(transactions=(one,)), before, 1)
    after = before.next(6, actions)
    assert (after.log.begins, json.loads(after.domains["tablestore.log.begins"])) == (5, {"version": 5})
    assert "begins" not in json.loads(after.domains["tablestore.log"])
    assert not Commit(6, tuple(actions)).begins_log
    assert after.next(7, plan_actions(proposal(ended=frozenset(["t1"])), after, 1)).log.begins == 5


def test_the_later_of_both_domains_says_where_the_log_begins() -> None:
    """A version of 2026-11-28 that begins a log repeats the domain that it does not know."""
    begun = state().next(6, plan_actions(proposal(Operation.ALTER, new_log=NewLog({"topic": "y"}, {0: 2})), state(), 1))
    written = {"identity": {"topic": "z"}, "open": [], "begins": 7}
    older = (domain_action("tablestore.log", written),)
    after = begun.next(7, [*plan_actions(replace(proposal(), base_version=6), begun, 1), *older])
    assert after.log.begins == 7
    assert Commit(7, older).begins_log
    one = LogTransaction("t1", (LogRange(0, 2, 3, 1),))
    again = after.next(8, plan_actions(replace(proposal(transactions=(one,)), base_version=7), after, 1))
    assert again.log.begins == 7
    assert json.loads(again.domains["tablestore.log.begins"]) == {"version": 7}


@pytest.mark.parametrize(("domain", "text"), [("tablestore.log", "{"), ("tablestore.log.begins", '{"version": "x"}')])
def test_a_damaged_domain_of_the_log_is_an_error_of_ours(domain: str, text: str) -> None:
    action = {"domainMetadata": {"domain": domain, "configuration": text, "removed": False}}
    with pytest.raises(Corrupt, match="what the Delta log says of the table's log") as caught:
        _ = Commit(7, (action,)).begins_log
    assert caught.value.code == "bad-log-entry"


def test_what_takes_a_lost_transactions_place_is_open_and_only_once() -> None:
    lost, again = LogTransaction("t1", (LogRange(0, 0, 1, 1),)), LogTransaction("t1.x", (LogRange(0, 5, 6, 1),))
    before = state().next(6, plan_actions(proposal(transactions=(lost,)), state(), 1))
    mine = proposal(Operation.REPUBLISH, republished={"t1": again})
    actions = plan_actions(mine, before, 1)
    after = before.next(7, actions)
    assert after.log.open == (again,)
    assert after.log.offsets == {0: 6}
    snapshot = Commit(7, tuple(actions)).snapshot()
    assert (snapshot.republished, snapshot.transactions) == ({"t1": again}, ())
    assert before.next(7, plan_actions(proposal(republished={"t1": None}), before, 1)).log.open == ()
    with pytest.raises(Conflict) as caught:
        plan_actions(mine, after, 1)
    assert caught.value.code == "already-republished"


def test_a_log_in_its_own_order_keeps_what_is_behind_the_repaired_records() -> None:
    early, late = LogTransaction("t1", (LogRange(0, 0, 5, 5),)), LogTransaction("t2", (LogRange(0, 5, 9, 3),))
    mine = proposal(transactions=(early, late), log_order=True, repaired={0: 5})
    after = state().next(6, plan_actions(mine, state(), 1))
    assert after.log.open == (late,)
    assert after.log.repaired == {0: 5}
    older = proposal(log_order=True, repaired={0: 3, 1: 2})
    assert after.next(7, plan_actions(older, after, 1)).log.repaired == {0: 5, 1: 2}


@pytest.mark.parametrize("in_log_order", [True, False])
def test_a_commit_in_log_order_looks_at_every_commit_that_has_records(in_log_order: bool) -> None:
    reported = LogTransaction("t1", (LogRange(0, 0, 1, 1),))
    theirs = Proposal(Operation.WRITE, "theirs", 4)
    between = [Commit(6, tuple(plan_actions(replace(theirs, log=LogChanges(transactions=(reported,))), state(), 1)))]
    found = judge(proposal(log_order=in_log_order), state(), between)
    assert found == (Rebase(frozenset()) if in_log_order else Clear())
    silent = [Commit(6, tuple(plan_actions(theirs, state(), 1)))]
    assert judge(proposal(log_order=in_log_order), state(), silent) == Clear()


def test_an_overwrite_with_change_data_depends_on_what_it_replaces() -> None:
    mine = PartitionSet.of([A.partition])
    for compared, replaces, found in (
        (True, ALL_PARTITIONS, Rebase(frozenset({A}), frozenset({A}))),
        (True, mine, Rebase(frozenset({A}), frozenset({A}))),
        (True, NO_PARTITIONS, Clear()),
        (False, ALL_PARTITIONS, Clear()),
    ):
        overwrite = proposal(Operation.OVERWRITE, replaces=replaces, replaced_slots=compared)
        assert judge(overwrite, state(), [adds(A)]) == found

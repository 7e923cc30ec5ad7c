"""The order in which an operation is prepared, committed, begun again and cleaned up, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.proposal import Premises, Proposal
from filestore.commit.protocol import Observer, commit_operation
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, CommitUnknown, Conflict, TableStoreError, Unavailable
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FailAt, FaultyStorage
from tests.tables import create, define, prepare, reopen, seeded, write

RETRIES = 3


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(LocalStorage())


@pytest.fixture
def store(folder: Path, storage: FaultyStorage) -> FileStore:
    return create(folder / "t", define("id BIGINT, v INT", ["id"], commit_max__retries=RETRIES), storage, seeded(1))


def nothing() -> None:
    """Does nothing."""


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def conflict() -> Conflict:
    return Conflict("others were faster", code="theirs", again=True)


@dataclass
class Steps(Observer):
    """An operation that commits an empty version, and records its steps; the steps in `fails` raise."""

    fails: dict[str, Callable[[], None]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        self.seen.append(name)
        self.fails.get(name, nothing)()

    @contextmanager
    def begin(self, base: TableState) -> Iterator[Attempt]:
        self.step("begin")
        try:
            yield Attempt(self, base)
        except BaseException:
            self.seen.append("end after an error")
            raise
        self.step("end")

    def began_again(self, conflict: Conflict) -> None:
        self.step("began again")

    def failed(self) -> None:
        self.step("failed")


@dataclass
class Attempt:
    steps: Steps
    base: TableState

    def prepare(self) -> Proposal | None:
        self.steps.step("prepare")
        premises = Premises(all_slots=True)
        return Proposal(Operation.WRITE, f"commit-{len(self.steps.seen)}", self.base.version, premises=premises)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        self.steps.step("rebase")
        return proposal

    def finish(self, committed: Committed) -> None:
        self.steps.step("finish")

    def discard(self, *, again: bool) -> None:
        self.steps.step("discard for another attempt" if again else "discard")


def at_commit(storage: FaultyStorage, error: BaseException, *, after: bool) -> None:
    storage.hook = FailAt(1, error, after, "write_new", "_delta_log/")


def test_steps_of_a_commit(store: FileStore) -> None:
    steps = Steps()
    committed = commit_operation(store, steps.begin, observer=steps)
    assert committed is not None
    assert (committed.snapshot.version, steps.seen) == (1, ["begin", "prepare", "finish", "end"])


@pytest.mark.parametrize("step", ["finish", "end"])
def test_an_error_after_the_commit_is_a_warning(store: FileStore, step: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error of closing the log or of removing the lease does not make a committed version fail."""
    steps = Steps({step: raising(Unavailable("the disk is full"))})
    committed = commit_operation(store, steps.begin, observer=steps)
    assert committed is not None
    assert reopen(store).state().version == committed.snapshot.version == 1
    assert steps.seen == ["begin", "prepare", "finish", "end"]
    assert "the disk is full" in caplog.text


def test_an_unknown_commit_before_the_operation_leaves_it_unchanged(store: FileStore) -> None:
    """Decision 88: a commit on which an operation is based is not the operation's own."""
    for step in ("begin", "prepare"):
        steps = Steps({step: raising(CommitUnknown("look for commit 7"))})
        with pytest.raises(Unavailable, match=r"look for commit 7; .* changed nothing and can be repeated") as caught:
            commit_operation(store, steps.begin, observer=steps)
        assert not isinstance(caught.value, CommitUnknown)
        assert steps.seen[-1] == "failed"
    assert reopen(store).state().version == 0


def test_an_unknown_commit_of_its_own_discards_nothing(store: FileStore, storage: FaultyStorage) -> None:
    failing = FailAt(1, Unavailable("reset"), True, "write_new", "_delta_log/")

    def fail(call: Call) -> None:
        if failing.fired and call.operation == "read":
            raise Unavailable("still down")
        failing(call)

    storage.hook, steps = fail, Steps()
    with pytest.raises(CommitUnknown):
        commit_operation(store, steps.begin, observer=steps)
    assert steps.seen == ["begin", "prepare", "end after an error"]


def test_an_interrupt_during_the_commit_discards_nothing(store: FileStore, storage: FaultyStorage) -> None:
    at_commit(storage, KeyboardInterrupt(), after=True)
    steps = Steps()
    with pytest.raises(KeyboardInterrupt):
        commit_operation(store, steps.begin, observer=steps)
    assert steps.seen == ["begin", "prepare", "end after an error"]


def test_an_interrupt_before_the_commit_discards_everything(store: FileStore) -> None:
    steps = Steps({"prepare": raising(KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt):
        commit_operation(store, steps.begin, observer=steps)
    assert steps.seen == ["begin", "prepare", "discard", "end after an error"]


def test_a_failed_commit_is_discarded(store: FileStore, storage: FaultyStorage) -> None:
    at_commit(storage, Unavailable("503"), after=False)
    steps = Steps()
    with pytest.raises(Unavailable, match="503"):
        commit_operation(store, steps.begin, observer=steps)
    assert steps.seen == ["begin", "prepare", "discard", "end after an error", "failed"]


def test_a_clean_up_that_fails_does_not_hide_the_error(store: FileStore) -> None:
    steps = Steps({"prepare": raising(conflict_without_retry()), "discard": raising(Unavailable("and no clean-up"))})
    with pytest.raises(Conflict, match="too late"):
        commit_operation(store, steps.begin, observer=steps)


def conflict_without_retry() -> Conflict:
    return Conflict("too late")


def test_a_conflict_begins_again_as_often_as_the_option_says(store: FileStore) -> None:
    steps = Steps({"prepare": raising(conflict())})
    with pytest.raises(Conflict, match="others were faster"):
        commit_operation(store, steps.begin, observer=steps)
    attempt = ["begin", "prepare", "discard for another attempt", "end after an error", "began again"]
    assert steps.seen == [*attempt * RETRIES, "begin", "prepare", "discard", "end after an error", "failed"]


def test_a_conflict_at_the_commit_begins_again_as_often_as_the_option_says(
    store: FileStore, storage: FaultyStorage
) -> None:
    """The last attempt knows that no other one follows, so it keeps nothing for one."""
    rival = reopen(store)

    def rival_is_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log" in call.path and not call.done:
            write(rival, [{"id": 1, "v": 1}])

    storage.hook = rival_is_first
    steps = Steps({"rebase": raising(conflict())})
    with pytest.raises(Conflict, match="others were faster") as caught:
        commit_operation(store, steps.begin, observer=steps)
    assert caught.value.code == "theirs"
    assert not caught.value.again
    attempt = ["begin", "prepare", "rebase", "discard for another attempt", "end after an error", "began again"]
    last = ["begin", "prepare", "rebase", "discard", "end after an error", "failed"]
    assert steps.seen == [*attempt * RETRIES, *last]


def test_attempts_of_an_operation_within_an_operation_are_not_multiplied(store: FileStore) -> None:
    """A rollback folds first: if its fold has lost all its attempts, the rollback does not repeat the fold."""
    inner = Steps({"prepare": raising(conflict())})
    outer = Steps({"prepare": lambda: discarded(commit_operation(store, inner.begin))})
    with pytest.raises(Conflict, match="others were faster"):
        commit_operation(store, outer.begin, observer=outer)
    assert inner.seen.count("begin") == RETRIES + 1
    assert outer.seen == ["begin", "prepare", "discard", "end after an error", "failed"]


def discarded(value: object) -> None:
    """Accepts a value that is not needed."""


@pytest.mark.parametrize("where", ["reading the newest version", "begin", "began again"])
@pytest.mark.parametrize("error", [Unavailable("down"), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_what_was_kept_for_an_attempt_that_does_not_begin_is_discarded(
    store: FileStore, storage: FaultyStorage, where: str, error: BaseException
) -> None:
    """A rewrite of a table's files is kept from attempt to attempt; it is removed if the storage fails between them."""
    steps = Steps({"prepare": raising(conflict())})

    def then_fail() -> None:
        if where == "reading the newest version":
            storage.hook = FailAt(1, error, operation="read")
        elif where == "begin":
            steps.fails["begin"] = raising(error)
        else:
            raise error

    steps.fails["began again"] = then_fail
    with pytest.raises(type(error)):
        commit_operation(store, steps.begin, observer=steps)
    discards = [step for step in steps.seen if step.startswith("discard")]
    assert discards == ["discard for another attempt", "discard"]
    assert steps.seen.count("prepare") == 1
    assert ("failed" in steps.seen) is isinstance(error, TableStoreError)


def test_nothing_to_do_is_no_version(store: FileStore) -> None:
    steps = Steps()

    class Idle(Attempt):
        def prepare(self) -> None:
            self.steps.step("prepare")

    assert commit_operation(store, lambda base: nullcontext(Idle(steps, base)), observer=steps) is None
    assert (store.state().version, steps.seen) == (0, ["prepare"])


# ---------------------------------------------------------------------------------------------- requests sent twice


def sent_twice(storage: FaultyStorage, then: Callable[[Call], None] = lambda call: None) -> None:
    """The network loses the reply to a commit; the client sends the request again, and learns that the name exists."""

    def hook(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and call.done:
            storage.hook = then
            raise AlreadyExists("the name exists", code="file-exists")

    storage.hook = hook


def test_a_commit_that_was_sent_twice_is_found(store: FileStore, storage: FaultyStorage) -> None:
    sent_twice(storage)
    steps = Steps()
    committed = commit_operation(store, steps.begin, observer=steps)
    assert committed is not None
    assert (committed.snapshot.version, steps.seen) == (1, ["begin", "prepare", "finish", "end"])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_commit_that_was_sent_twice_is_never_discarded(store: FileStore, storage: FaultyStorage, number: int) -> None:
    """The table's version names the files, so an error while it is searched for must not remove them."""
    sent_twice(storage, FailAt(number, Unavailable("down"), operation="read"))
    steps = Steps()
    try:
        commit_operation(store, steps.begin, observer=steps)
    except CommitUnknown:
        assert number == 1
    assert reopen(store, LocalStorage()).state().version == 1
    assert "discard" not in steps.seen


def test_a_lost_race_differs_from_a_request_that_was_sent_twice(store: FileStore, storage: FaultyStorage) -> None:
    prepared = prepare(store, [{"id": 1, "v": 1}])

    def other_wins(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            write(reopen(store), [{"id": 2, "v": 2}])

    storage.hook = other_wins
    committed = prepared.commit()
    assert (committed.snapshot.version, committed.races) == (2, 1)

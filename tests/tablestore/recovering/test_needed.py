"""Which keys a repair writes: a small log whose writers die at all steps, and readers that begin at each version."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.model.log_range import LogRange
from tablestore.recovering.needed import PASSED, TRANSACTION, TailTransaction, Whose, needed
from tablestore.recovering.order import repaired_until

KEYS = range(3)
SCHEMA = {"key 0": pl.Int64, TRANSACTION: pl.UInt32, PASSED: pl.Boolean}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "append", "append", "complete", "commit", "die", "recover"]), st.integers(0, 5)
    ),
    min_size=8,
    max_size=40,
)


@dataclass
class Transaction:
    commit: int
    repaired_at: int | None = None


@dataclass
class Writer:
    base: int
    changes: Transaction
    puts: dict[int, int | None] = field(default_factory=dict)
    repairs: list[Transaction] = field(default_factory=list)
    completed_at: int = -1
    repaired: int = 0
    seen: int = 0

    @property
    def own(self) -> list[Transaction]:
        return [self.changes, *self.repairs]


@dataclass
class Version:
    rows: dict[int, int]
    named: list[Transaction]
    open: list[Transaction]
    repaired: int


class Model:
    """The log and the table's versions, of one bucket."""

    def __init__(self) -> None:
        self.log: list[tuple[Transaction, int, int | None]] = []
        self.versions = [Version({}, [], [], 0)]
        self.living: list[Writer] = []
        self.commits = 0

    def begin(self) -> None:
        at = len(self.versions) - 1
        self.living.append(Writer(at, Transaction(self.commits), seen=at))
        self.commits += 1

    def append(self, writer: Writer, number: int) -> None:
        if writer.completed_at >= 0:
            return
        key, value = number % 3, None if number > 4 else len(self.log)
        writer.puts[key] = value
        self.log.append((writer.changes, key, value))

    def ranges(self, transactions: list[Transaction]) -> list[LogRange]:
        found = []
        for transaction in transactions:
            if at := [n for n, record in enumerate(self.log) if record[0] is transaction]:
                found.append(LogRange(0, at[0], at[-1] + 1, len(at)))
        return found

    def complete(self, writer: Writer) -> None:
        """Does the same as `LogOrder.completed`."""
        version, state = len(self.versions) - 1, self.versions[-1]
        if writer.completed_at == version:
            return
        keys, living = self._strays(writer, state, version)
        keys |= self._contended(writer)
        looked = len(self.log)
        after = {**state.rows, **writer.puts}
        repair = Transaction(writer.changes.commit, version)
        self.log += [(repair, key, after.get(key)) for key in sorted(keys)]
        writer.repairs.append(repair)
        writer.completed_at, writer.seen = version, version
        writer.repaired = max(state.repaired, repaired_until(looked, living, self.ranges([*state.open, *writer.own])))

    def _strays(self, writer: Writer, state: Version, version: int) -> tuple[set[int], int | None]:
        others = [t for w in self.living if w is not writer for t in w.own]
        transactions: list[Transaction] = []
        rows: list[tuple[int, int, bool]] = []
        living: int | None = None
        for offset, (transaction, key, _) in enumerate(self.log):
            if offset < state.repaired:
                continue
            if any(transaction is other for other in others):
                living = offset if living is None else living
                continue
            if not any(transaction is known for known in transactions):
                transactions.append(transaction)
            at = next(n for n, known in enumerate(transactions) if known is transaction)
            rows.append((key, at, living is None))
        listed = [TailTransaction(self._whose(t, writer, state), t.commit, t.repaired_at) for t in transactions]
        found = needed(pl.DataFrame(rows, schema=SCHEMA, orient="row"), listed, version)["key 0"].to_list()
        strays = {key for key, at, _ in rows if listed[at].whose is Whose.STRAY}
        assert len(found) == len(set(found))
        assert set(found) <= strays
        return set(found), living

    def _whose(self, transaction: Transaction, writer: Writer, state: Version) -> Whose:
        if any(transaction is own for own in writer.own):
            return Whose.OWN
        return Whose.NAMED if any(transaction is t for t in state.open) else Whose.STRAY

    def _contended(self, writer: Writer) -> set[int]:
        """Returns the same as `LogOrder._contended`."""
        own = [n for n, record in enumerate(self.log) if any(record[0] is t for t in writer.own)]
        if not own:
            return set()
        reported = any(any(record[0] is t for t in writer.repairs) for record in self.log)
        begin = 0 if reported else own[0]
        rivals = [t for v in self.versions[writer.seen + 1 :] for t in v.named]
        late = [t for t in rivals if any(part.end > begin for part in self.ranges([t]))]
        theirs = {key for transaction, key, _ in self.log if any(transaction is t for t in late)}
        return theirs & {self.log[n][1] for n in own}

    def commit(self, writer: Writer) -> None:
        self.complete(writer)
        state = self.versions[-1]
        rows = {key: value for key, value in {**state.rows, **writer.puts}.items() if value is not None}
        listed = [*state.open, *writer.own]
        still = [t for t in listed if any(part.end > writer.repaired for part in self.ranges([t]))]
        self.versions.append(Version(rows, writer.own, still, writer.repaired))
        self.living.remove(writer)

    def recover(self) -> None:
        self.begin()
        self.commit(self.living[-1])

    def step(self, what: str, number: int) -> None:
        if what == "begin" or not self.living:
            return self.recover() if what == "recover" else self.begin()
        writer = self.living[number % len(self.living)]
        match what:
            case "append":
                self.append(writer, number)
            case "complete":
                self.complete(writer)
            case "commit":
                self.commit(writer)
            case "die":
                self.living.remove(writer)
            case "recover":
                self.recover()
        return None

    def read_from(self, at: int) -> dict[int, int]:
        """Returns the rows of a reader that began at a version, like `tablestore/following/tail_run.py`."""
        version = self.versions[at]
        rows = dict(version.rows)
        for offset, (transaction, key, value) in enumerate(self.log):
            if offset < version.repaired or any(transaction is t for t in version.open):
                continue
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        return rows


DEAD = [("begin", 0), ("append", 0), ("die", 0)]
OVERTAKEN = [*DEAD, ("begin", 0), ("append", 0), ("begin", 0), ("complete", 1), ("die", 1), ("commit", 0)]
CHANGED = [("begin", 0), ("append", 0), ("begin", 0), ("append", 3), ("die", 1), ("complete", 0), ("die", 0)]
OUTDATED = [
    *(*DEAD, ("begin", 0), ("append", 0), ("begin", 0), ("complete", 0)),
    *(("complete", 1), ("die", 1), ("commit", 0)),
]
PASSED_OVER = [
    *(("begin", 0), ("append", 4), ("begin", 0), ("append", 3), ("die", 1)),
    *(("begin", 0), ("append", 3), ("commit", 1), ("die", 0)),
]


@given(STEPS)
@example(OVERTAKEN).via("a dead repair is behind a record of the commit")
@example(CHANGED).via("a dead repair of a key that its own commit would have changed")
@example(OUTDATED).via("a dead repair rests on a version that others have changed since")
@example(PASSED_OVER).via("a reader begins where a writer lives, and leaves out what was committed over a stray")
def test_all_readers_end_with_the_tables_rows(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for what, number in steps:
        model.step(what, number)
    model.living.clear()
    model.recover()
    for version in range(len(model.versions)):
        assert model.read_from(version) == model.versions[-1].rows, f"from version {version}"
    before = len(model.log)
    model.recover()
    assert len(model.log) == before, "what is repaired is not repaired again"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_repairs_by_writers_that_die_add_up_to_what_these_wrote(keys: list[int]) -> None:
    """Each writer puts one key, repairs what others left, and dies."""
    model = Model()
    for key in keys:
        model.begin()
        model.append(model.living[0], key)
        model.complete(model.living[0])
        model.living.clear()
    model.recover()
    assert len(model.log) <= 2 * len(keys) + 1
    assert model.versions[-1].rows == model.read_from(0) == {}

"""Which log transactions a writer ends for others: those of dead writers, and never those of living ones."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest

from filestore.errors import NotFound, Unavailable
from filestore.model.log_range import LogTransaction
from filestore.storage.local import LocalStorage
from log.table.session import LogSession
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.recovering.recovery import Recovery
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.faults import FailAt, FaultyStorage
from tests.opened import again
from tests.warehouses import assert_whole, changes, replay
from tests.writers import sorted_batches


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("shop.t", "id BIGINT", primary_key=["id"])


def ids(*given: int) -> pa.Table:
    return pa.table({"id": pa.array(given, pa.int64())})


def assert_logged(table: Table, wanted: list[int]) -> None:
    assert [row["id"] for row in assert_whole(table, leftovers=False)] == wanted
    assert [row["id"] for row in replay(changes(table, version=0), ["id"])] == wanted


def test_a_writer_leaves_the_transactions_of_another_that_is_at_work(table: Table) -> None:
    ours, other = sorted_batches(table, ids(1)), again(table)

    def run(job: WriteJob) -> list[TaskOutcome]:
        outcome = job.run(ours, "0.0")
        assert outcome.transaction is not None
        other.write(ids(2))  # its first write: it searches the log
        return [outcome]

    again(table).writer().write(run)
    assert_logged(table, [1, 2])


def test_records_of_a_write_that_failed_are_gone(table: Table) -> None:
    """Other consumers of the log must never see them."""
    ours, written = sorted_batches(table, ids(1)), list[LogTransaction]()

    def run(job: WriteJob) -> list[TaskOutcome]:
        outcome = job.run(ours, "0.0")
        assert outcome.transaction is not None
        written.append(outcome.transaction)
        return [outcome]

    storage = FaultyStorage(
        LocalStorage(), FailAt(1, Unavailable("injected"), operation="write_new", path="_delta_log/")
    )
    with pytest.raises(Unavailable, match="injected"):
        again(table, storage=storage).writer().write(run)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.filestore.ambient) as log:
        assert log.open_transactions() == []
        with pytest.raises(NotFound, match="1 of 1 records"):
            list(log.read(written))
    table.write(ids(2))
    assert_logged(table, [2])


def test_the_lease_of_a_dead_writer_stays_while_a_transaction_is_open(table: Table) -> None:
    """It may be one that a broker has not ended yet: the file makes the next writer search again."""
    ours, other, left = sorted_batches(table, ids(1)), again(table), list[str]()

    def run(job: WriteJob) -> list[TaskOutcome]:
        outcome = job.run(ours, "0.0")
        with pytest.raises(KeyError), table.filestore.leases.hold("dead"):
            raise KeyError
        other.write(ids(2))
        left.extend(table.filestore.leases.abandoned())
        return [outcome]

    again(table).writer().write(run)
    assert left == ["dead"]
    again(table).write(ids(3))
    assert table.filestore.leases.abandoned() == []


def test_a_transaction_that_the_log_has_lost_does_not_count_as_ended(table: Table) -> None:
    """The next commit would remove it from the list, and nobody would publish it again."""
    with patch.object(Recovery, "commit_transactions", side_effect=Unavailable("injected")):
        again(table).write(ids(1))
    [lost] = table.filestore.state().log.open
    config, ambient = table.opened.log_config(), table.filestore.ambient
    assert config is not None
    with open_log(config, ambient) as log:
        log.end([lost], commit=False)
    recovery = Recovery(table.filestore, ambient)
    with (
        LogSession(config, ambient) as session,
        patch("tablestore.recovering.recovery.republish", side_effect=Unavailable("injected")),
        pytest.raises(Unavailable, match="injected"),
    ):
        recovery.before_write(table.filestore.state(), session)
    assert recovery.ended == frozenset()
    recovered = again(table).recover()
    assert (recovered.ended, recovered.republished) == ((), (lost.id,))


def test_a_transaction_that_a_version_names_meanwhile_is_not_aborted(table: Table) -> None:
    """The version is committed after the other writer has read its base, and its own writer dies before the end."""
    base = table.filestore.state()
    with patch.object(Recovery, "commit_transactions", side_effect=Unavailable("injected")):
        again(table).write(ids(1))
    config = table.opened.log_config()
    assert config is not None
    with LogSession(config, table.filestore.ambient) as log:
        recovered = Recovery(table.filestore, table.filestore.ambient).before_write(base, log)
    assert recovered.aborted == ()
    table.write(ids(2))
    assert_logged(table, [1, 2])

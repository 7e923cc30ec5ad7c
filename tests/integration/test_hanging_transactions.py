"""Recovery ends hanging transactions of a table's log, so that foreign readers continue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compaction.compactor import Compactor
from filestore.ambient import system_ambient
from filestore.storage.locations import Storages
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.logcare.duty import LOG
from tests.conformance.log_store import changes
from tests.late_records import CARELESS, write_late
from tests.servers.kafka import KafkaBroker
from tests.warehouses import rows

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("careless"), CARELESS) as broker:
        yield broker


@pytest.fixture
def hanging(store: Store, careless: KafkaBroker) -> Table:
    """A table whose committed transaction is open for ever in one bucket of its log."""
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": careless.bootstrap}
    columns = "id BIGINT, name STRING, price DECIMAL(20, 2)"
    table = store.create_table("shop.orders", columns, primary_key=["id"], options=options)
    table.write(changes([1]).drop_columns(["_kind"]))
    (transaction,) = table.filestore.state().log.open
    (reported,) = transaction.ranges
    config = table.opened.required_log()
    with open_log(config, system_ambient()) as log:
        assert log.end([transaction], commit=True).ended == (transaction.id,)
    write_late(config, 1 - reported.bucket, transaction, changes([7]))
    return table


def held_back(table: Table) -> int:
    return sum(bucket.held_back for bucket in table.log_status().values())


@pytest.mark.deep
def test_recover_ends_what_hangs(hanging: Table) -> None:
    assert held_back(hanging) == 1
    (ended,) = hanging.recover().completed
    assert ended.startswith(f"{hanging.opened.identity.table_id}/")
    assert held_back(hanging) == 0
    assert hanging.recover().completed == ()
    assert [row["id"] for row in rows(hanging)] == [1]


@pytest.mark.deep
def test_so_does_a_compactor(hanging: Table, store: Store) -> None:
    (outcome,) = Compactor(store._catalog, Storages(), system_ambient()).run(LOG)
    assert "1 completed" in (outcome.done or "")
    assert held_back(hanging) == 0

"""A Kafka that does not answer: nothing is created meanwhile, and it does not block the name of a dropped table."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog_service.tables.lifecycle import DEBT_RETRY_MS
from catalog_service.wire.databases import CreateDatabase
from catalog_service.wire.tables import CreateTable
from filestore.ambient import Ambient
from filestore.errors import AlreadyExists, Unavailable
from filestore.model.definition import TableDefinition
from managed_table.identity import TableIdentity
from tests.catalog_service import faults
from tests.catalog_service.faults import KAFKA, TOPICS, Fault, check, orders, restarted, running_service, with_database


@pytest.fixture
def broker(warehouse: str) -> Path:
    """The file that says the broker is down."""
    folder = Path(warehouse) / TOPICS
    folder.mkdir(parents=True)
    return folder / "down"


def topics(broker: Path) -> list[str]:
    return sorted(p.name for p in broker.parent.iterdir() if p != broker)


def test_create_makes_nothing(warehouse: str, broker: Path) -> None:
    with_database(warehouse)
    broker.touch()
    service = running_service(warehouse)
    with pytest.raises(Unavailable) as caught:
        service.create_table("shop", orders("kafka"))
    assert caught.value.code == "log-unavailable"
    assert "add_table" not in service.striker.calls
    broker.unlink()
    assert check(warehouse) == []


@pytest.mark.parametrize("refusal", ["", "the broker does not know this user"])
def test_drop_frees_the_name_and_says_so(warehouse: str, broker: Path, refusal: str) -> None:
    with_database(warehouse, orders("kafka"))
    broker.write_text(refusal)
    service = running_service(warehouse)
    with pytest.raises(Unavailable) as caught:
        service.drop_table("shop", "orders")
    assert caught.value.code == "log-left"
    assert caught.value.message.startswith("table shop.orders is dropped: its rows are gone, and its name is free.")
    assert "Its topic shop.orders." in caught.value.message
    assert f" is left ({refusal or 'the broker does not answer'})" in caught.value.message
    assert service.list_tables("shop").tables == []
    assert not Path(warehouse, "shop", "orders").exists()
    service.create_table("shop", orders("none"))
    service.drop_table("shop", "orders")
    assert len(topics(broker)) == 1

    with pytest.raises(Unavailable) as again:  # a retry of the drop tries again
        service.drop_table("shop", "orders")
    assert (again.value.code, again.value.message) == ("log-left", caught.value.message)
    broker.unlink()
    service.drop_table("shop", "orders")
    assert check(warehouse) == []


def test_start_up_pays_when_the_broker_is_back(warehouse: str, broker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_database(warehouse, orders("kafka"))
    broker.touch()
    with pytest.raises(Unavailable):
        running_service(warehouse).drop_table("shop", "orders")
    _, report = restarted(warehouse)
    assert report == []  # not due yet: a dead broker must not slow every start
    later = faults.AMBIENT.now_ms() + DEBT_RETRY_MS + 1
    monkeypatch.setattr(faults, "AMBIENT", Ambient(lambda: later, *AMBIENT_REST))
    _, report = restarted(warehouse)
    assert len(report) == 1
    assert report[0].startswith("could not drop the log of table shop.orders")
    broker.unlink()
    later += DEBT_RETRY_MS
    _, report = restarted(warehouse)
    assert report == ["dropped the log of table shop.orders"]
    assert check(warehouse) == []


AMBIENT_REST = (faults.AMBIENT.new_id, faults.AMBIENT.chance, faults.AMBIENT.sleep)


def test_an_undo_is_not_held_up(warehouse: str, broker: Path) -> None:
    with_database(warehouse)
    service = running_service(warehouse, Fault("create_files"))
    service.striker.strike_first = broker.touch
    with pytest.raises(Unavailable):
        service.create_table("shop", orders("kafka"))
    assert service.list_tables("shop").tables == []
    assert len(topics(broker)) == 1
    assert running_service(warehouse).create_table("shop", orders("none"))[1]
    broker.unlink()


def test_a_topic_named_by_the_user_holds_its_row(warehouse: str, broker: Path) -> None:
    named = orders("kafka", options={**KAFKA, "log.kafka.topic": "mine"})
    with_database(warehouse, named)
    broker.touch()
    service = running_service(warehouse)
    with pytest.raises(Unavailable):
        service.drop_table("shop", "orders")
    with pytest.raises(Unavailable):
        service.create_table("shop", named)
    broker.unlink()
    assert service.create_table("shop", named)[1]
    assert topics(broker) == ["mine"]
    assert check(warehouse) == ["shop.orders"]


def test_a_topic_of_somebody_else_stays(warehouse: str, broker: Path) -> None:
    (broker.parent / "theirs").touch()
    with_database(warehouse)
    service = running_service(warehouse)
    with pytest.raises(AlreadyExists) as caught:
        service.create_table("shop", orders("kafka", options={**KAFKA, "log.kafka.topic": "theirs"}))
    assert caught.value.code == "log-exists"
    assert topics(broker) == ["theirs"]
    assert service.list_tables("shop").tables == []


def test_a_topic_that_somebody_makes_meanwhile_stays(
    warehouse: str, broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(log: faults.TopicLog) -> None:
        log._topic.touch()
        raise AlreadyExists("a topic of another table", code="log-exists")

    monkeypatch.setattr(faults.TopicLog, "create", create)
    with_database(warehouse)
    service = running_service(warehouse)
    with pytest.raises(AlreadyExists):
        service.create_table("shop", orders("kafka", options={**KAFKA, "log.kafka.topic": "theirs"}))
    assert topics(broker) == ["theirs"]
    assert service.list_tables("shop").tables == []
    assert not Path(warehouse, "shop", "orders").exists()


@pytest.fixture
def race(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> CreateTable:
    """What asks for a topic that another table, ``orders``, takes right after it was seen that nobody had it."""
    named = {**KAFKA, "log.kafka.topic": "mine"}
    seen = faults.TestTables.check_new

    def check_new(steps: faults.TestTables, table: TableIdentity, definition: TableDefinition) -> bool:
        found = seen(steps, table, definition)
        if table.name == "late":
            running_service(warehouse).create_table("shop", orders("kafka", options=named))
        return found

    monkeypatch.setattr(faults.TestTables, "check_new", check_new)
    with_database(warehouse)
    return orders("kafka", name="late", options=named)


def test_the_loser_of_a_topic_leaves_it_though_its_undo_is_finished_later(
    warehouse: str, broker: Path, race: CreateTable
) -> None:
    service = running_service(warehouse, Fault("remove_table"))
    with pytest.raises(AlreadyExists) as caught:
        service.create_table("shop", race)
    assert caught.value.code == "log-exists"
    assert service.striker.struck
    assert restarted(warehouse)[1] == ["completed the drop of table shop.late"]
    assert topics(broker) == ["mine"]
    assert check(warehouse) == ["shop.orders"]
    restarted(warehouse)[0].drop_table("shop", "orders")
    assert topics(broker) == []


def test_the_loser_of_a_topic_gets_an_error_though_it_died_before_it_checked_again(
    warehouse: str, broker: Path, race: CreateTable
) -> None:
    with pytest.raises(Unavailable):
        running_service(warehouse, Fault("tables_with_option", call=2, sticky=True)).create_table("shop", race)
    with pytest.raises(AlreadyExists) as caught:
        running_service(warehouse).create_table("shop", race)
    assert caught.value.code == "log-exists"
    assert topics(broker) == ["mine"]
    assert check(warehouse) == ["shop.orders"]


def test_a_database_goes_although_its_logs_wait(warehouse: str, broker: Path) -> None:
    with_database(warehouse, orders("kafka"), orders(name="items"))
    broker.touch()
    service = running_service(warehouse)
    service.drop_database("shop", cascade=True)
    assert service.list_databases().databases == []
    assert service.create_database(CreateDatabase(name="shop"))[1]
    broker.unlink()
    service._lifecycle._drop_left_logs(service._repository.log_debts())
    assert check(warehouse) == []

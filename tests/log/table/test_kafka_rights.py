"""A broker with ACLs: the rights of PROTOCOL.md section 7.3 are enough for each operation, and errors name others."""

from __future__ import annotations

import contextlib
import logging
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import tablestore
from catalog_service.server import serving
from filestore.errors import InvalidRequest, TableStoreError, Unavailable
from tablestore import Store
from tests.depth import sampled
from tests.servers.kafka import KafkaBroker, quiet
from tests.waiting import until

pytestmark = pytest.mark.kafka

TOPIC, IDS, CLUSTER = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)
CREATE, WRITE = (
    [(TOPIC, "CREATE"), (TOPIC, "DESCRIBE"), (TOPIC, "DESCRIBE_CONFIGS"), (CLUSTER, "DESCRIBE_CONFIGS")],
    [(TOPIC, "READ"), (TOPIC, "WRITE"), (IDS, "WRITE")],
)


PASSWORD = "planted-5d0c1f"


class GuardedBroker(KafkaBroker):
    """Has a second listener where ``ann`` logs in, who has no rights until they are granted."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            self.guarded = f"127.0.0.1:{trial.getsockname()[1]}"
        super().__init__(folder)

    def _base_settings(self) -> dict[str, str]:
        base = super()._base_settings()
        login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{PASSWORD}";'
        return base | {
            "listeners": f"{base['listeners']},GUARDED://{self.guarded}",
            "advertised.listeners": f"{base['advertised.listeners']},GUARDED://{self.guarded}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def options(self) -> dict[str, str]:
        """Returns the options of a table whose log is on this broker."""
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "ann", "sasl.password": "${env:TABLESTORE_SECRET_ANN}"}
        given = {f"log.kafka.properties.{name}": value for name, value in login.items()}
        return {"log.system": "kafka", "log.kafka.bootstrap.servers": self.guarded, **given}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_SECRET_ANN", PASSWORD)


@pytest.fixture
def allow(broker: GuardedBroker) -> Callable[..., None]:
    """Grants ann these rights and no others."""
    admin = AdminClient(quiet(broker.bootstrap))
    any_ = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )

    def give(rights: list[tuple[tuple[ResourceType, str], str]]) -> None:
        for gone in admin.delete_acls([any_]).values():
            gone.result()
        bindings = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:ann", "*", AclOperation[what], AclPermissionType.ALLOW
            )
            for (kind, name), what in rights
        ]
        for made in admin.create_acls(bindings).values() if bindings else ():
            made.result()
        until(lambda: len(admin.describe_acls(any_).result()) == len(rights), what="the rights hold")

    return give


@pytest.mark.parametrize("transactions", sampled(["true", "false"], 2, test=2))
def test_the_rights_of_the_page_are_enough_for_each_operation(
    broker: GuardedBroker, allow: Callable[..., None], store: Store, transactions: str
) -> None:
    options = {**broker.options(), "log.kafka.transactions": transactions}
    spare = [IDS, CLUSTER] if transactions == "false" else []
    rows = pa.table({"id": [1], "v": [1]})
    allow([right for right in CREATE if right[0] not in spare])
    store.create_table("shop.orders", "id BIGINT, v BIGINT", primary_key=["id"], options=options)

    allow([(TOPIC, "READ"), (IDS, "WRITE")])
    with pytest.raises(InvalidRequest, match=r"WRITE on topic shop\.orders.* is not allowed") as caught:
        store.table("shop.orders").write(rows)
    assert caught.value.code == "log-not-authorized"
    allow([right for right in WRITE if right[0] not in spare])
    store.table("shop.orders").write(rows)
    store.table("shop.orders").recover()

    allow([(TOPIC, "READ")])
    assert [b.num_rows for b in store.table("shop.orders").follow(version=0, stop=1)] == [1]

    allow([])
    assert store.table("shop.orders").scan().to_polars().rows() == [(1, 1)]
    allow([(TOPIC, "DESCRIBE")])
    assert store.table("shop.orders").log_status()
    allow([(TOPIC, "ALTER_CONFIGS"), (TOPIC, "DESCRIBE")])
    store.table("shop.orders").alter("SET TBLPROPERTIES ('log.retention' = '3 h')")
    allow([(TOPIC, "DESCRIBE")])
    with pytest.raises(Unavailable, match=r"is dropped.*Topic authorization failed") as left:
        store.drop_table("shop.orders")
    assert left.value.code == "log-left"
    allow([(TOPIC, "DELETE")])
    store.drop_table("shop.orders")


def test_a_password_is_in_no_output(
    broker: GuardedBroker,
    allow: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table refers to it, and whoever connects has it: neither files nor the catalog, answers, logs nor errors."""
    caplog.set_level(logging.DEBUG)
    allow([*CREATE, *WRITE, (TOPIC, "DELETE"), (TOPIC, "ALTER_CONFIGS")])
    topic = {
        "connector": "kafka",
        "topic": "planted",
        "topic.partitions": "1",
        "properties.bootstrap.servers": broker.guarded,
        "format": "json",
    }
    topic |= {n.removeprefix("log.kafka."): v for n, v in broker.options().items() if ".properties." in n}
    outputs: list[object] = []
    with serving(str(tmp_path)) as url, tablestore.connect(url) as store:
        store.create_database("shop")
        options = broker.options() | {"checkpoint.interval": "2"}
        table = store.create_table("shop.t", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
        for number in range(3):
            table.write(pa.table({"id": [number], "v": [1]}))
        assert sum(b.num_rows for b in table.follow(version=0, stop=3)) == 3
        messages = store.create_kafka_table("shop.messages", "id BIGINT", options=topic)
        messages.write(pa.table({"id": [1]}))
        assert [b.num_rows for b in messages.scan().to_batches()] == [1]
        outputs += [table, table.definition, table.opened.log_config(), table.detail(), table.examine()]
        outputs += [table.system(name).to_pylist() for name in ("options", "snapshots")]
        outputs += [messages, messages.declaration, messages.detail()]
        outputs += [httpx.get(f"{url}/databases/shop/tables/{name}").text for name in ("t", "messages")]
        monkeypatch.setenv("TABLESTORE_SECRET_ANN", PASSWORD + "x")
        for act in (lambda: store.table("shop.t").write(pa.table({"id": [9], "v": [9]})), messages.detail):
            with contextlib.suppress(TableStoreError):
                outputs.append(act())
        with pytest.raises(InvalidRequest) as wrong:
            store.table("shop.t").log_status()
        outputs += [wrong.value, *traceback.format_exception(wrong.value)]
    outputs += [record.getMessage() for record in caplog.records] + list(capfd.readouterr())
    assert "${env:TABLESTORE_SECRET_ANN}" in repr(outputs), "the reference is shown"
    assert PASSWORD not in "".join(f"{one!r} {one!s}" for one in outputs)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()] == []

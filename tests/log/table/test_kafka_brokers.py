"""The log in Kafka against brokers of these tests: one that dies, one that refuses, one that asks for passwords."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, TableStoreError, Unsupported
from log.connector.declaration import KafkaDeclaration
from log.connector.topic import ConnectorTopic
from log.connector.writer import ConnectorWriter
from log.kafka.admin import led
from log.kafka.transactions import TransactionClient
from log.table.config import LogConfig
from log.table.on_kafka.settings import topic_of
from log.table.on_kafka.store import KafkaLog
from log.table.on_kafka.topic import Topic
from log.table.store import EndReport
from log.table.systems import open_log
from tests.conformance.log_store import changes, ids_of, prepared, transaction_id
from tests.depth import sampled
from tests.log.connector.tables import KAFKA, declared
from tests.log.table.foreign import foreign_ids, kafka_config
from tests.log.table.processes import WriterProcess
from tests.servers.kafka import KafkaBroker, quiet
from tests.waiting import until

pytestmark = pytest.mark.kafka


class TestBrokerCrash:
    """Nothing is lost if a broker dies."""

    @pytest.fixture(params=sampled(["true", "false"], 2, test=2), ids=["transactions", "plain"])
    def config(self, mortal_broker: KafkaBroker, request: pytest.FixtureRequest) -> LogConfig:
        return kafka_config(mortal_broker, **{"log.kafka.transactions": request.param})

    def test_a_prepared_transaction_outlives_writer_and_broker(
        self, mortal_broker: KafkaBroker, config: LogConfig
    ) -> None:
        with open_log(config, system_ambient()) as log:
            log.create()
            with WriterProcess(config, transaction_id(config), buckets=[0, 1], rows=1000) as process:
                transaction = process.prepared()
                mortal_broker.kill()
                process.kill()
            mortal_broker.start()
            assert log.end([transaction], commit=True) == EndReport(ended=(transaction.id,))
            for bucket in (0, 1):
                assert ids_of(log.read([transaction], bucket=bucket)) == list(range(1000))
            until(lambda: len(foreign_ids(config)) == 2000, what="foreign readers see it")

    @pytest.mark.deep
    def test_a_broker_that_dies_while_a_transaction_is_written_costs_nothing(
        self, mortal_broker: KafkaBroker, config: LogConfig
    ) -> None:
        with open_log(config, system_ambient()) as log:
            log.create()
            writer = log.begin(transaction_id(config))
            writer.append(0, changes(range(1000)))
            mortal_broker.kill()
            writer.append(0, changes(range(1000, 2000)))
            mortal_broker.start()
            writer.append(0, changes(range(2000, 3000)))
            transaction = writer.prepare()
            assert transaction is not None
            assert ids_of(log.read([transaction])) == list(range(3000))
            assert log.end([transaction], commit=True) == EndReport(ended=(transaction.id,))


@pytest.mark.deep
def test_an_admin_client_from_before_an_election_finds_the_new_leader(mortal_broker: KafkaBroker) -> None:
    """The client keeps the epoch of the leader that it knows, so brokers refused it for as long as it lived."""
    config = kafka_config(mortal_broker)
    with open_log(config, system_ambient()) as log:
        log.create()
    topic = topic_of(config)
    admin = AdminClient(quiet(mortal_broker.bootstrap))
    last = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]

    def ask() -> int:
        (found,) = admin.list_offsets(last).values()
        return int(found.result().offset)

    assert led(admin, topic, ask, 20.0, system_ambient()) == 0
    mortal_broker.kill()
    mortal_broker.start()
    assert led(admin, topic, ask, 20.0, system_ambient()) == 0


@pytest.mark.deep
def test_a_broker_that_would_abort_prepared_transactions_is_refused(tmp_path: Path) -> None:
    with (
        KafkaBroker(tmp_path, {"transaction.max.timeout.ms": "900000"}) as broker,
        open_log(kafka_config(broker), system_ambient()) as log,
    ):
        with pytest.raises(Unsupported, match=r"transaction\.max\.timeout\.ms=2147483647") as caught:
            log.create()
        assert caught.value.code == "kafka-transaction-timeout"
        assert "log.kafka.transactions = false" in caught.value.message
        assert not log.exists()
        config = kafka_config(broker, **{"log.kafka.transactions": "false"})
        with open_log(config, system_ambient()) as plain:
            plain.create()
            assert ids_of(plain.read([prepared(plain, config, 0, changes([1]))])) == [1]
        servers = {"properties_bootstrap_servers": broker.bootstrap, "topic_partitions": "1"}
        long = {"sink_semantic": "exactly-once", "properties_transaction_timeout_ms": "900001"}
        topic = declared("id BIGINT", KAFKA, **servers, **long)
        with pytest.raises(InvalidRequest, match=r"says \(900000 ms at most\): lower that") as refused:
            ConnectorTopic(topic, system_ambient()).require()
        assert refused.value.code == "kafka-transaction-timeout"
        ConnectorTopic(
            declared("id BIGINT", KAFKA, **servers, sink_semantic="exactly-once"), system_ambient()
        ).require()
        with pytest.raises(InvalidRequest, match=r"properties\.transaction\.timeout\.ms says: lower that") as refused:
            ConnectorWriter(topic, system_ambient()).write([pa.table({"id": [1]})])
        assert refused.value.code == "kafka-transaction-timeout"


# ----------------------------------------------------------------------------------------------- security


PASSWORD = "not-a-secret"


@pytest.fixture(scope="module")
def key_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a broker's key and certificate by Java's keytool; ``ca.pem`` and a user's ``user.pem`` are beside it."""
    folder = tmp_path_factory.mktemp("keys")
    store = folder / "broker.p12"
    common = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
    names = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"]
    _keytool("-genkeypair", "-keyalg", "EC", "-validity", "2", *common, *names)
    _keytool("-exportcert", "-rfc", "-file", str(folder / "ca.pem"), *common)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "users.pem"))
    authority.issue_cert("ann").private_key_and_cert_chain_pem.write_to_path(str(folder / "user.pem"))
    return store


def _keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)


class StrictBroker(KafkaBroker):
    """Has listeners with SASL over TLS, SASL alone and certificates; it forgets ended transactions soon."""

    def __init__(self, folder: Path, key_store: Path) -> None:
        with ExitStack() as stack:
            trials = [stack.enter_context(socket.socket()) for _ in range(3)]
            for trial in trials:
                trial.bind(("127.0.0.1", 0))
            self.secure, self.scram, self.mutual = (f"127.0.0.1:{trial.getsockname()[1]}" for trial in trials)
        self._key_store = key_store
        super().__init__(folder, scram={"ann": PASSWORD})

    def _base_settings(self) -> dict[str, str]:
        base = super()._base_settings()
        logins = "org.apache.kafka.common.security"
        more = f"SECURE://{self.secure},SCRAM://{self.scram},MUTUAL://{self.mutual}"
        return base | {
            "transactional.id.expiration.ms": "2000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
            "listeners": f"{base['listeners']},{more}",
            "advertised.listeners": f"{base['advertised.listeners']},{more}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,SCRAM:SASL_PLAINTEXT,MUTUAL:SSL,CONTROLLER:PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{logins}.scram.ScramLoginModule required;",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.location": str(self._key_store.with_name("users.pem")),
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.secure.plain.sasl.jaas.config": (
                f'{logins}.plain.PlainLoginModule required user_ann="{PASSWORD}";'
            ),
            "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{logins}.scram.ScramLoginModule required;",
            "ssl.keystore.location": str(self._key_store),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
        }


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory, key_store: Path) -> Iterator[StrictBroker]:
    with StrictBroker(tmp_path_factory.mktemp("strict"), key_store) as broker:
        yield broker


class TestStrictBroker:
    @pytest.fixture
    def config(self, strict_broker: StrictBroker, key_store: Path) -> LogConfig:
        return secure_config(strict_broker, key_store)

    def test_what_the_coordinator_has_forgotten_is_looked_up_in_the_topic(self, config: LogConfig) -> None:
        with open_log(config, system_ambient()) as log:
            assert isinstance(log, KafkaLog)
            log.create()
            committed, aborted = prepared(log, config, 0, changes([1])), prepared(log, config, 0, changes([2]))
            log.end([committed], commit=True)
            log.end([aborted], commit=False)
            for transaction in (committed, aborted):
                until(lambda t=transaction: log.describe(t.id) is None, what="the id expires")  # type: ignore[misc]
            ids = EndReport(ended=(committed.id,), lost=(aborted.id,))
            assert log.end([committed, aborted], commit=True) == ids
            assert log.end([aborted], commit=False) == EndReport(ended=(aborted.id,))

    @pytest.mark.few(1)
    @pytest.mark.parametrize(
        ("listener", "changed"),
        [
            ("secure", {}),
            ("secure", {"sasl.mechanism": "SCRAM-SHA-256"}),
            ("scram", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}),
            ("mutual", {"security.protocol": "SSL", "ssl.certificate.location": "user.pem"}),
        ],
        ids=["PLAIN and TLS", "SCRAM-SHA-256 and TLS", "SCRAM-SHA-512", "certificates"],
    )
    def test_everything_works_over_sasl_and_tls(
        self, strict_broker: StrictBroker, key_store: Path, config: LogConfig, listener: str, changed: dict[str, str]
    ) -> None:
        properties = {**dict(config.properties), **changed}
        if "ssl.certificate.location" in changed:
            user = str(key_store.with_name(changed["ssl.certificate.location"]))
            properties |= {"ssl.certificate.location": user, "ssl.key.location": user}
        servers = getattr(strict_broker, listener)
        config = replace(config, bootstrap_servers=servers, properties=tuple(properties.items()))
        with open_log(config, system_ambient()) as log:
            log.create()
            transaction = prepared(log, config, 0, changes([1, 2]))
            dead = prepared(log, config, 1, changes([3]))
            assert log.end([transaction], commit=True) == EndReport(ended=(transaction.id,))
            assert log.abort_unnamed(lambda ids: ids) == [dead.id]
            assert ids_of(log.read([transaction])) == [1, 2]
            log.drop()

    @pytest.mark.few(3)
    @pytest.mark.parametrize(
        ("properties", "kind", "code"),
        [
            ({"sasl.password": "wrong"}, InvalidRequest, "log-not-authorized"),
            ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "wrong"}, InvalidRequest, "log-not-authorized"),
            ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "eve"}, InvalidRequest, "log-not-authorized"),
            ({"sasl.mechanism": "SCRAM-SHA-512"}, Unsupported, "log-sasl"),
            ({"ssl.ca.location": "probe"}, InvalidRequest, "log-settings"),
            ({"security.protocol": "carrier-pigeon"}, InvalidRequest, "log-properties"),
        ],
    )
    def test_wrong_settings_are_an_error_with_a_code(
        self, config: LogConfig, properties: dict[str, str], kind: type[TableStoreError], code: str
    ) -> None:
        given = {**dict(config.properties), **properties}
        client = TransactionClient(config.bootstrap_servers or "", given, 1.0, system_ambient())
        with pytest.raises(kind) as caught:
            client.describe("a/b/c")
        assert caught.value.code == code
        client.close()

    @pytest.mark.parametrize(
        ("secure", "changed", "kind", "code", "words"),
        [
            (True, {"sasl.password": "wrong"}, InvalidRequest, "log-not-authorized", "Invalid username or password"),
            (True, {"sasl.mechanism": "SCRAM-SHA-512"}, Unsupported, "log-sasl", "mechanisms: PLAIN,SCRAM-SHA-256"),
            (True, {"ssl.ca.location": None}, InvalidRequest, "log-settings", "certificate verify failed"),
            (True, {"security.protocol": "SSL"}, InvalidRequest, "log-settings", "wants security.protocol = SASL_SSL"),
            (True, {"security.protocol": None}, InvalidRequest, "log-settings", "wants security.protocol = SASL_SSL"),
            (False, {"security.protocol": "SSL"}, InvalidRequest, "log-settings", "security.protocol = PLAINTEXT, and"),
            (False, {"security.protocol": "SASL_PLAINTEXT"}, InvalidRequest, "log-settings", "asks for no login"),
        ],
    )
    def test_the_reason_why_there_is_no_connection_is_reported_at_once(
        self,
        strict_broker: StrictBroker,
        config: LogConfig,
        secure: bool,
        changed: dict[str, str | None],
        kind: type[TableStoreError],
        code: str,
        words: str,
    ) -> None:
        properties = {name: value for name, value in {**dict(config.properties), **changed}.items() if value}
        servers = strict_broker.secure if secure else strict_broker.bootstrap
        for topic in (
            Topic(replace(config, bootstrap_servers=servers, properties=tuple(properties.items())), system_ambient()),
            ConnectorTopic(_declared_at(servers, properties), system_ambient()),
        ):
            with pytest.raises(kind) as caught:
                topic.exists() if isinstance(topic, Topic) else topic.partitions()
            assert type(caught.value) is kind
            assert caught.value.code == code
            assert words in caught.value.message


def _declared_at(servers: str, properties: Mapping[str, str]) -> KafkaDeclaration:
    # 100 s: the test would notice an answer that arrives when the request times out
    given = {"properties.bootstrap.servers": servers, "properties.socket.timeout.ms": "100000"}
    return declared("id BIGINT", {**KAFKA, **given, **{f"properties.{k}": v for k, v in properties.items()}})


def secure_config(broker: StrictBroker, key_store: Path) -> LogConfig:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(key_store.with_name("ca.pem")),
    }
    config = kafka_config(broker, **{f"log.kafka.properties.{k}": v for k, v in given.items()})
    return replace(config, bootstrap_servers=broker.secure)

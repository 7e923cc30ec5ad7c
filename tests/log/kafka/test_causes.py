"""Reports of a client about its connections: permanent causes end a request at once. Without a broker."""

from __future__ import annotations

import gc
import socket
import ssl
import weakref

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, TableStoreError, Unavailable, Unsupported
from log.connector.topic import ConnectorTopic
from log.kafka.admin import Admin
from log.kafka.causes import Causes, spoken_protocol
from log.kafka.transactions import TransactionClient
from tests.log.connector.tables import KAFKA, declared

DOWN = (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
REFUSED = (KafkaError._TRANSPORT, "h:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused")
UNKNOWN = (KafkaError._RESOLVE, "Failed to resolve 'h:1': Name or service not known (after 1ms in state CONNECT)")
NOT_NOW = (KafkaError._RESOLVE, "Failed to resolve 'h:1': Temporary failure in name resolution")
PASSWORD = (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed")
MECHANISM = (KafkaError._AUTHENTICATION, "handshake failed: Broker: Unsupported SASL mechanism: PLAIN")
NO_LOGIN = (KafkaError._AUTHENTICATION, "handshake failed: Broker: Request not valid in current SASL state")
UNTRUSTED = (KafkaError._SSL, "SSL handshake failed: certificate verify failed")
HUNG_UP = (KafkaError._TRANSPORT, "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?")


def noticed(*reports: tuple[int, str]) -> Causes:
    causes = Causes()
    for code, text in reports:
        causes.notice(KafkaError(code, text))
    return causes


@pytest.mark.parametrize(
    ("report", "kind", "code", "advice"),
    [
        (UNKNOWN, InvalidRequest, "log-servers", "bootstrap.servers"),
        (PASSWORD, InvalidRequest, "log-not-authorized", "sasl.password"),
        (MECHANISM, Unsupported, "log-sasl", "sasl.mechanism"),
        (NO_LOGIN, InvalidRequest, "log-settings", "security.protocol"),
        (UNTRUSTED, InvalidRequest, "log-settings", "ssl.ca.location"),
    ],
)
def test_what_no_waiting_repairs(report: tuple[int, str], kind: type[TableStoreError], code: str, advice: str) -> None:
    cause = noticed(report, DOWN, report).lasting
    assert cause is not None
    assert (cause.kind, cause.code) == (kind, code)
    assert report[1] in cause.reason
    assert advice in cause.reason
    assert noticed(report, report).lasting is None, "another broker is connected"
    assert noticed(report, DOWN).lasting is None, "once may be chance"
    assert noticed(report, DOWN, report, REFUSED).lasting is None, "the other server may come back"
    assert not noticed(report, DOWN, report).wordless


def test_what_may_pass() -> None:
    for report in (REFUSED, NOT_NOW):
        causes = noticed(report, DOWN, report, report)
        assert causes.lasting is None
        assert not causes.wordless
        assert causes.text == report[1]


def test_who_hangs_up_may_speak_another_protocol() -> None:
    assert noticed(DOWN).wordless
    assert noticed(DOWN, HUNG_UP).wordless
    assert not noticed().wordless
    assert not noticed(DOWN, REFUSED).wordless
    causes = noticed(UNTRUSTED, DOWN, UNTRUSTED)
    causes.clear()
    assert (causes.lasting, causes.wordless, causes.text) == (None, False, "")


@pytest.mark.slow
def test_a_port_that_refuses_may_be_a_broker_that_restarts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        assert spoken_protocol({"bootstrap.servers": servers}) is None
        properties = {"properties.bootstrap.servers": servers, "properties.socket.timeout.ms": "1000"}
        with pytest.raises(Unavailable, match="Connection refused") as caught:
            ConnectorTopic(declared("id BIGINT", {**KAFKA, **properties}), system_ambient()).partitions()
    assert caught.value.code == "log-unavailable"


def test_an_error_leaves_no_client_to_the_garbage_collector() -> None:
    """It may run in the client's own thread, and a client that is destroyed there ends the process."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        admin = Admin({"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}"})
        alive = weakref.ref(admin)
        asked = {TopicPartition("t", 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        gc.disable()
        try:
            with pytest.raises(KafkaException):
                [admin.answer(future) for future in admin.list_offsets(asked, request_timeout=0.1).values()]
            del admin
            assert alive() is None
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("problem", "kind", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), InvalidRequest, "log-servers"),
        (ssl.SSLCertVerificationError("certificate verify failed"), InvalidRequest, "log-settings"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), Unavailable, "log-unavailable"),
        (ConnectionRefusedError("Connection refused"), Unavailable, "log-unavailable"),
    ],
    ids=["unknown", "untrusted", "not now", "refused"],
)
def test_our_own_requests_say_the_same(
    monkeypatch: pytest.MonkeyPatch, problem: OSError, kind: type[TableStoreError], code: str
) -> None:
    asked = []

    def connect(*_: object) -> socket.socket:
        asked.append(1)
        raise problem

    monkeypatch.setattr(socket, "create_connection", connect)
    client = TransactionClient("h:1", {}, 0.05, system_ambient())
    with pytest.raises(kind) as caught:
        client.describe("a/b/c")
    assert (type(caught.value), caught.value.code) == (kind, code)
    assert str(problem.args[-1]) in caught.value.message
    assert (len(asked) == 1) is (kind is InvalidRequest), "what lasts is asked once"

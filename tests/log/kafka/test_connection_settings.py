"""Checks of a log's Kafka settings before any request. Without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, TableStoreError, Unsupported
from log.kafka.security import check_security, parse_servers
from log.table.systems import open_log
from tests.conformance.log_store import make_config

PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": "ca.pem"}
SCRAM = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}


@pytest.mark.parametrize(
    ("properties", "kind", "code"),
    [
        ({**PLAIN, "sasl.mechanism": "OAUTHBEARER"}, Unsupported, "log-sasl"),
        ({**PLAIN, "sasl.mechanism": "SCRAM-SHA-1"}, Unsupported, "log-sasl"),
        ({"security.protocol": "sasl_plaintext"}, Unsupported, "log-sasl"),
        ({**PLAIN, "ssl.keystore.location": "keys.p12"}, Unsupported, "log-tls"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "-----BEGIN"}, Unsupported, "log-tls"),
        ({"security.protocol": "carrier-pigeon"}, InvalidRequest, "log-properties"),
    ],
)
def test_a_log_is_not_made_that_could_not_be_written(
    properties: dict[str, str], kind: type[TableStoreError], code: str
) -> None:
    given = {f"log.kafka.properties.{name}": value for name, value in properties.items()}
    config = make_config("", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "127.0.0.1:9", **given})
    with open_log(config, system_ambient()) as log:
        for call in (log.exists, log.create, log.check_adoptable):
            with pytest.raises(kind) as caught:
                call()
            assert caught.value.code == code


def test_what_a_connection_can_use_is_taken() -> None:
    for settings in (
        {},
        PLAIN,
        SCRAM,
        {**SCRAM, "sasl.password": "a\u00a0b"},
        {"security.protocol": "ssl"},
        {"ssl.ca.pem": "of no use without TLS"},
    ):
        check_security(settings)
    assert parse_servers("a, SSL://b:1,[::1]:2") == [("a", 9092), ("b", 1), ("::1", 2)]


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("log.kafka.properties.socket.timeout.ms", "10 s", "log-properties"),
        ("log.kafka.bootstrap.servers", "broker:kafka", "log-servers"),
    ],
)
def test_what_is_no_number_is_reported(option: str, value: str, code: str) -> None:
    options = {"log.system": "kafka", "log.kafka.bootstrap.servers": "127.0.0.1:9", option: value}
    with pytest.raises(InvalidRequest) as caught:
        open_log(make_config("", **options), system_ambient())
    assert caught.value.code == code


@pytest.mark.parametrize("setting", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_that_is_missing_is_named(setting: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    given = {"log.kafka.properties.security.protocol": "SSL", f"log.kafka.properties.{setting}": missing}
    config = make_config("", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "127.0.0.1:9", **given})
    with open_log(config, system_ambient()) as log, pytest.raises(InvalidRequest) as caught:
        log.exists()
    assert caught.value.code == "log-settings"
    assert f"{setting} = {missing}" in caught.value.message

"""Who may reach the service: tokens, addresses, certificates, and the brokers that tables may name."""

from __future__ import annotations

import socket

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from catalog_service.server import run, serving
from catalog_service.server.listening import Settings, check_settings
from catalog_service.server.security import check_exposure
from catalog_service.use_cases.broker_policy import BrokerPolicy
from filestore.errors import InvalidRequest
from tablestore.cli import app

KAFKA = {"log.system": "kafka", "log.kafka.bootstrap.servers": "10.0.0.7:9092"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_service_that_others_reach_needs_a_token(warehouse: str, tmp_path, host: str) -> None:
    with pytest.raises(InvalidRequest, match="--insecure") as caught:
        run(warehouse, Settings(host=host, port=0))
    assert caught.value.code == "token-needed"
    assert not list(tmp_path.iterdir()), "nothing was opened"


def test_what_makes_a_service_safe_enough() -> None:
    check_exposure("any", "0.0.0.0", "t", insecure=False)
    check_exposure("any", "0.0.0.0", None, insecure=True)
    for address in ("127.0.0.1", "127.8.9.1", "::1"):
        check_exposure("here", address, None, insecure=False)
    for address in ("192.168.0.1", "0.0.0.0", "::", "fe80::1%eth0"):
        with pytest.raises(InvalidRequest):
            check_exposure("there", address, None, insecure=False)


@pytest.mark.parametrize(
    ("token", "code"), [("", "token-empty"), ("  ", "token-empty"), ("ä", "bad-token"), ("a\n", "bad-token")]
)
def test_tokens_that_no_header_carries(token: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_settings(Settings(token=token))
    assert caught.value.code == code


def test_an_empty_variable_is_not_no_authentication(warehouse: str) -> None:
    ended = CliRunner(env={"TABLESTORE_TOKEN": ""}).invoke(app, ["serve", "--warehouse", warehouse, "--port", "0"])
    assert ended.exit_code == 1
    assert "token is empty" in ended.output


# ---------------------------------------------------------------------------------------------- brokers


def create(url: str, options: dict[str, str]) -> httpx.Response:
    body = {"name": "orders", "schema": "id BIGINT", "primary_key": ["id"], "options": options}
    return httpx.post(f"{url}/api/v1/databases/shop/tables", json=body, trust_env=False)


def test_a_service_calls_allowed_brokers_only(warehouse: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as secret:
        secret.setblocking(False)
        port = secret.getsockname()[1]
        elsewhere = f"broker:9092,127.0.0.1:{port}"
        with serving(warehouse, broker_policy=BrokerPolicy.of(["broker:9092"])) as url:
            httpx.post(f"{url}/api/v1/databases", json={"name": "shop"}, trust_env=False).raise_for_status()
            for options in (
                {"log.system": "kafka", "log.kafka.bootstrap.servers": elsewhere},
                KAFKA
                | {"log.kafka.bootstrap.servers": "broker", "log.kafka.properties.metadata.broker.list": elsewhere},
                {
                    "connector": "upsert-kafka",
                    "topic": "t",
                    "properties.bootstrap.servers": elsewhere,
                    "key.format": "json",
                    "value.format": "json",
                },
            ):
                refused = create(url, options)
                assert (refused.status_code, refused.json()["code"]) == (400, "broker-not-allowed"), refused.text
                assert f"127.0.0.1:{port}" in refused.json()["detail"]
        with pytest.raises(BlockingIOError):
            secret.accept()


@pytest.mark.parametrize(
    "setting", ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "socket.timeout.ms"]
)
def test_settings_that_run_programs_or_wait_for_hours_are_refused_by_any_service(setting: str) -> None:
    for prefix in ("log.kafka.properties.", "properties."):
        with pytest.raises(InvalidRequest) as caught:
            BrokerPolicy().check_options({prefix + setting: "600000"})
        assert caught.value.code == "client-property"
    BrokerPolicy().check_options({"properties.socket.timeout.ms": "60000", "fields.plugin.library.paths": "x"})


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("broker", ["broker", "BROKER:9092", "broker:1", "SASL_SSL://broker:9"], ["broker2", "a.broker", "broker.a"]),
        ("broker:9092", ["broker", "broker:9092"], ["broker:9093"]),
        ("*.kafka.local:9092", ["a.kafka.local", "B-1.kafka.local:9092"], ["kafka.local:9092", "a.kafka.local:1"]),
        ("*.kafka.local", ["a.kafka.local:1"], ["a.b.kafka.local:9092", ".kafka.local", "evil:1/a.kafka.local:9092"]),
        ("broker-*.*.local", ["broker-1.a.local"], ["broker-1.local", "broker-1.a.b.local", "broker-.a.local"]),
        ("*:9092", ["a.b", "[::1]:9092"], ["a:1", "evil:1/a:9092", "evil:1/:9092"]),
        ("10.0.0.7", ["10.0.0.7:9092"], ["10.0.0.70:9092", "10x0.0.7:9092"]),
        ("[::1]:9092", ["[::1]:9092", "[::1]"], ["1:9092", ":9092", "[::2]:9092"]),
        ("*", ["any.thing:1", "[::1]:2"], ["evil:1/a:9092"]),
    ],
)
def test_patterns_of_brokers(pattern: str, yes: list[str], no: list[str]) -> None:
    policy = BrokerPolicy.of([pattern])
    for broker in yes:
        policy.check_options({"properties.bootstrap.servers": broker})
    for broker in no:
        with pytest.raises(InvalidRequest):
            policy.check_options({"properties.bootstrap.servers": broker})


@given(st.text(max_size=20))
def test_a_pattern_is_refused_or_matches_what_it_spells(text: str) -> None:
    try:
        policy = BrokerPolicy.of([text])
    except InvalidRequest as error:
        assert error.code == "bad-broker-pattern"
    else:
        policy.check_options({"properties.bootstrap.servers": text.replace("*", "a")})


def test_what_librdkafka_takes_for_a_path_is_no_name_of_a_broker() -> None:
    """It calls ``evil:1`` for each of these."""
    policy = BrokerPolicy.of(["*.kafka.local:9092", "broker"])
    for broker in ("ssl://evil:1/a.kafka.local:9092", "ssl://evil:1/://broker", "ssl://evil:1/.kafka.local:9092"):
        with pytest.raises(InvalidRequest) as caught:
            policy.check_options({"properties.bootstrap.servers": broker})
        assert caught.value.code == "broker-not-allowed"


def test_oauth_endpoints_are_calls_too() -> None:
    options = {"properties.sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/latest"}
    BrokerPolicy().check_options(options)
    with pytest.raises(InvalidRequest):
        BrokerPolicy.of(["broker:9092"]).check_options(options)

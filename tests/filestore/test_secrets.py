"""References to secrets in tables' options: what a process resolves, what is refused, what is shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from filestore.checks.report import Invariant, Severity
from filestore.errors import InvalidRequest
from filestore.model.table_options import TableOptions
from filestore.secrets import check_references, literal_secrets, resolved, shown
from log.kafka.settings import of_clients
from tablestore import Store

SASL = "log.kafka.properties.sasl.password"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABLESTORE_SECRETS", raising=False)
    monkeypatch.setenv("TABLESTORE_SECRET_KAFKA", "pw")
    monkeypatch.setenv("TABLESTORE_TOKEN", "of the service")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:TABLESTORE_SECRET_KAFKA}", "pw"),
        ("ann:${env:TABLESTORE_SECRET_KAFKA}", "ann:pw"),
        ("${env:TABLESTORE_SECRET_KAFKA}${env:TABLESTORE_SECRET_KAFKA}", "pwpw"),
        ("plain", "plain"),
        ("", ""),
        ("${other:x} $env ${env}", "${other:x} $env ${env}"),
    ],
)
def test_references_are_resolved_where_they_stand(text: str, expected: str) -> None:
    assert resolved(text) == expected


def test_what_a_secret_holds_is_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_SECRET_KAFKA", "${env:TABLESTORE_TOKEN}")
    assert resolved("${env:TABLESTORE_SECRET_KAFKA}") == "${env:TABLESTORE_TOKEN}"


@pytest.mark.parametrize("line_break", ["", "\n", "\r\n"])
def test_a_file_holds_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_break: str) -> None:
    path = tmp_path / "kafka-orders"
    path.write_text(f"from a file{line_break}", newline="")
    monkeypatch.setenv("TABLESTORE_SECRETS", f"env:KAFKA_*, file:{tmp_path}/kafka-*")
    assert resolved(f"${{file:{path}}}") == "from a file"


@pytest.mark.parametrize(
    "reference",
    [
        "${env:TABLESTORE_TOKEN}",
        "${env:AWS_SECRET_ACCESS_KEY}",
        "${env:tablestore_secret_kafka}",
        "${env:}",
        "${file:/run/secrets/kafka}",
        "${file:TABLESTORE_SECRET_KAFKA}",
    ],
)
def test_a_process_resolves_only_allowed_references(reference: str) -> None:
    """Who creates a table chooses the brokers to which the password goes, and may be a stranger to this process."""
    with pytest.raises(InvalidRequest, match=r"may only resolve env:TABLESTORE_SECRET_\*") as caught:
        resolved(reference)
    assert caught.value.code == "bad-secret"
    assert "of the service" not in caught.value.message


@pytest.mark.parametrize(
    "path",
    [
        "{0}/deeper/kafka-a",
        "{0}/../token",
        "{0}/kafka-a/../token",
        "{0}//kafka-a",
        "{0}/./kafka-a",
        "/kafka-a",
        "kafka-a",
    ],
)
def test_a_pattern_of_files_allows_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("TABLESTORE_SECRETS", f"file:{tmp_path}/*")
    with pytest.raises(InvalidRequest, match="may only resolve"):
        resolved("${file:" + path.format(tmp_path) + "}")


def test_a_secret_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match=r"\$TABLESTORE_SECRET_OTHER is not set"):
        resolved("${env:TABLESTORE_SECRET_OTHER}")
    monkeypatch.setenv("TABLESTORE_SECRETS", f"file:{tmp_path}/*")
    with pytest.raises(InvalidRequest, match=r"of \$\{file:.*/missing\} cannot be read"):
        resolved(f"${{file:{tmp_path}/missing}}")


LITERALS = {
    SASL: "pw",
    "log.kafka.properties.ssl.key.password": "pw",
    "log.kafka.properties.ssl.key.pem": "-----BEGIN",
    "log.kafka.properties.sasl.oauthbearer.client.secret": "pw",
    "properties.sasl.password": "pw",
    "value.avro-confluent.basic-auth.user-info": "ann:pw",
    "avro-confluent.bearer-auth.token": "pw",
    "avro-confluent.url": "http://one,https://ann:pw@registry",
    "log.kafka.properties.sasl.oauthbearer.token.endpoint.url": "https://idp/token?client_secret=pw",
    "log.kafka.properties.sasl.oauthbearer.assertion.private.key.passphrase": "pw",
    "properties.sasl.oauthbearer.config": "principal=ann scope=pw",
    "key.avro-confluent.url": "https://pw@registry",
    "value.avro-confluent.url": "https://registry/?api_key=pw",
}
REFERENCE = "${env:TABLESTORE_SECRET_KAFKA}"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PARTLY = [
    (SASL, f"prefix-{REFERENCE}"),
    (SASL, f"{REFERENCE}x"),
    ("log.kafka.properties.ssl.key.pem", f"-----BEGIN PRIVATE KEY-----\nMIIE\n{REFERENCE}\n-----END PRIVATE KEY-----"),
    ("avro-confluent.bearer-auth.token", f"ey{REFERENCE}"),
    ("avro-confluent.basic-auth.user-info", f"{REFERENCE}:pw"),
    ("avro-confluent.basic-auth.user-info", f"ann:pw{REFERENCE}"),
    ("avro-confluent.basic-auth.user-info", f"ann{REFERENCE}"),
    ("properties.sasl.jaas.config", f'{LOGIN} username="{REFERENCE}" password="pw";'),
    ("properties.sasl.jaas.config", f"{LOGIN} username={REFERENCE} password=pw;"),
    ("properties.sasl.jaas.config", f'{LOGIN} username="{REFERENCE}" password="x{REFERENCE}";'),
    ("properties.sasl.jaas.config", f"{LOGIN} username='{REFERENCE}' password 'pw';"),
    ("properties.sasl.jaas.config", f'{LOGIN} clientId="{REFERENCE}" clientSecret="pw";'),
]
"""Values of which a part is a reference and a part is a secret itself."""
BESIDE = [
    (SASL, f"{REFERENCE}{REFERENCE}"),
    ("log.kafka.properties.ssl.key.pem", f"-----BEGIN PRIVATE KEY-----\n{REFERENCE}\n-----END PRIVATE KEY-----\n"),
    ("log.kafka.properties.ssl.key.pem", f"-----BEGIN PRIVATE KEY-----\\n{REFERENCE}\\n-----END PRIVATE KEY-----"),
    ("avro-confluent.basic-auth.user-info", f"ann:{REFERENCE}"),
    ("avro-confluent.basic-auth.user-info", REFERENCE),
    ("properties.sasl.jaas.config", f'{LOGIN} username="ann" password="{REFERENCE}";'),
    ("properties.sasl.jaas.config", f'{LOGIN} username="ann" password="{REFERENCE}" tokenauth="true";'),
]
"""Values whose text beside the reference is no secret."""
HARMLESS = {
    "log.kafka.properties.sasl.username": "ann",
    "log.kafka.properties.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "fields.password.aggregate-function": "max",
    "sequence.field": "token",
    "avro-confluent.url": "http://registry:8081",
    "log.kafka.bootstrap.servers": "SASL_SSL://broker:9092",
    SASL: "${env:TABLESTORE_SECRET_KAFKA}",
}


@pytest.mark.parametrize("name", LITERALS)
def test_a_secret_itself_is_refused_and_not_shown(name: str) -> None:
    options = HARMLESS | {name: LITERALS[name]}
    assert literal_secrets(options) == [name]
    with pytest.raises(InvalidRequest, match=name) as caught:
        check_references(options)
    assert caught.value.code == "literal-secret"
    check_references(options | {"allow-literal-secrets": "true"})
    assert shown(options) == HARMLESS | {name: "****"}
    assert LITERALS[name] not in repr(TableOptions(tuple(options.items())))


@pytest.mark.parametrize(("name", "value"), PARTLY)
def test_a_part_of_a_secret_beside_a_reference_is_refused_and_not_shown(name: str, value: str) -> None:
    """Any reference made a value harmless, whatever stood beside it."""
    assert literal_secrets({name: value}) == [name]
    with pytest.raises(InvalidRequest, match="refer to all of it") as caught:
        check_references({name: value})
    assert caught.value.code == "literal-secret"
    assert "pw" not in caught.value.message
    assert shown({name: value}) == {name: "****"}


@pytest.mark.parametrize(("name", "value"), BESIDE)
def test_text_beside_a_reference_that_is_no_secret_is_allowed_and_shown(name: str, value: str) -> None:
    check_references({name: value})
    assert shown({name: value}) == {name: value}
    assert resolved(value) == value.replace(REFERENCE, "pw")


@pytest.mark.parametrize(
    "name",
    [
        "log.kafka.properties.sasl.mechanism",
        "log.kafka.properties.security.protocol",
        "properties.socket.timeout.ms",
        "properties.ssl.ca.location",
        "properties.client.id",
        "properties.sasl.username",
        "value.avro-confluent.url",
    ],
)
def test_what_errors_quote_has_no_reference(name: str) -> None:
    """Who may create a table read any secret that a process resolves, in an error about a mechanism of that name."""
    for value in (REFERENCE, f"https://ann:{REFERENCE}@registry", "${file:/run/secrets/kafka}"):
        with pytest.raises(InvalidRequest, match=name) as caught:
            check_references({name: value, "allow-literal-secrets": "true"})
        assert caught.value.code == "bad-secret"
    prefix = next((prefix for prefix in ("log.kafka.properties.", "properties.") if name.startswith(prefix)), None)
    if prefix is not None:
        made = of_clients({name.removeprefix(prefix): REFERENCE}, "127.0.0.1:1", logging.getLogger("x"))
        assert "pw" not in made.values()


def test_references_and_other_options_are_shown() -> None:
    check_references(HARMLESS)
    assert shown(HARMLESS) == HARMLESS


def test_no_new_table_has_a_secret_itself(store: Store) -> None:
    with pytest.raises(InvalidRequest, match=SASL) as caught:
        store.create_table("shop.t", "id BIGINT", primary_key=["id"], options={SASL: "pw"})
    assert caught.value.code == "literal-secret"
    assert store.list_tables("shop") == []
    topic = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "localhost:1", "format": "json"}
    with pytest.raises(InvalidRequest, match=r"properties\.sasl\.password"):
        store.create_kafka_table("shop.t", "id BIGINT", options=topic | {"properties.sasl.password": "pw"})


def test_a_table_from_before_gets_a_reference_by_alter(store: Store) -> None:
    """One that was made with the secret itself; other changes of it go on, and new secrets are refused."""
    options = {SASL: "pw", "log.kafka.properties.ssl.key.password": "old", "allow-literal-secrets": "true"}
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"], options=options)
    assert "'pw'" not in repr(table.definition)
    table.alter("UNSET allow-literal-secrets")
    table.alter("SET num-sorted-run.compaction-trigger = 4")
    with pytest.raises(InvalidRequest, match="would be readable"):
        table.alter(f"SET {SASL} = 'other'")
    [finding] = table.examine().findings
    assert (finding.code, finding.severity) == (Invariant.LITERAL_SECRET, Severity.NOTE)
    assert f"values of {SASL}, log.kafka.properties.ssl.key.password: change" in finding.message
    table.alter(f"SET {SASL} = '${{env:TABLESTORE_SECRET_KAFKA}}'", "UNSET log.kafka.properties.ssl.key.password")
    assert table.examine().findings == ()
    assert table.definition.options.as_dict()[SASL] == "${env:TABLESTORE_SECRET_KAFKA}"

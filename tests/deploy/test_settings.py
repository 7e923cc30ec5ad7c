"""Every setting and command line in deploy/ exists in the product, and the files agree with each other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from deploy.local.description import Service, read, read_settings
from tablestore.cli import app
from tablestore.cli.secrets import FILE_SUFFIX, SECRETS
from tablestore.cli.settings import storage_options
from tablestore.cli.settings_page import FURTHER, settings
from tests.cli.programs import ROOT
from tests.deploy.test_files import DEPLOY, MANIFESTS, UNITS, containers, documents

OPTIONS = {setting.variable: setting for setting in settings()}
OF_AWS = {name for names, _, _ in FURTHER for name in names.split(", ") if name.startswith("AWS_")}
# botocore's; boto's documentation lists it, and without it a process asks a machine's metadata that has none
KNOWN = set(OPTIONS) | {name + FILE_SUFFIX for name in SECRETS} | OF_AWS | {"AWS_EC2_METADATA_DISABLED"}
ENV_FILES = ("settings.env", "kubernetes/settings.env", "systemd/settings.env")
COMPOSE = read(DEPLOY)


def variables() -> Iterator[tuple[str, str, str]]:
    """Where a variable of ours is set, its name and its value."""
    for name in ENV_FILES:
        yield from ((name, *pair) for pair in read_settings(DEPLOY / name).items())
    for service in COMPOSE.values():
        if service.image.startswith("tablestore"):
            own = {n: v for n, v in service.environment.items() if not n.startswith("SPARK_") and n != "HOME"}
            yield from ((service.name, *pair) for pair in own.items())
    for path in MANIFESTS:
        for manifest in documents(path):
            for container in containers(manifest):
                yield from ((path.name, v["name"], v["value"]) for v in container["env"])
    for path in UNITS:
        for pair in re.findall(r"^Environment=(.+)$", path.read_text(), re.M):
            name, value = pair.split("=", 1)
            yield path.name, name, value


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where a command line of ours is, and its words behind ``tablestore``."""
    for service in COMPOSE.values():
        if service.command[:1] == ("tablestore",):
            yield service.name, list(service.command[1:])
    for path in MANIFESTS:
        for manifest in documents(path):
            yield from ((path.name, container["args"][1:]) for container in containers(manifest))
    for path in UNITS:
        for line in re.findall(r"^ExecStart=(.+)$", path.read_text(), re.M):
            program, *words = shlex.split(line)
            assert program == "/opt/tablestore/bin/tablestore"
            yield path.name, words
    (image,) = re.findall(r'^CMD \["tablestore", (.+)\]$', (DEPLOY / "Dockerfile").read_text(), re.M)
    yield "Dockerfile", [word.strip(' "') for word in image.split(",")]


@pytest.mark.parametrize("place", sorted({place for place, _, _ in variables()}))
def test_each_variable_is_a_setting_of_the_product(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an option, which takes the value."""
    found = {name: value for where, name, value in variables() if where == place}
    assert found.keys() - KNOWN == set()
    for name in KNOWN:
        monkeypatch.delenv(name, raising=False)
    for name, value in found.items():
        if name in OPTIONS:
            monkeypatch.setenv(name, value)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for command in ("serve", "compactor"):
        commands[command].make_context(command, [])


def test_a_value_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESTORE_SERVE_PORT", "80800")
    with pytest.raises(Exception, match="too large"):
        typer.main.get_command(app).commands["serve"].make_context("serve", [])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("place", "words"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_command_line_is_understood(place: str, words: list[str]) -> None:
    group: Any = typer.main.get_command(app)
    name, command, rest = group.resolve_command(typer.Context(group), words)
    command.make_context(name, rest)


def test_what_is_wrong_is_noticed() -> None:
    """The checks can fail."""
    assert "TABLESTORE_SERVER_PORT" not in KNOWN
    group: Any = typer.main.get_command(app)
    with pytest.raises(Exception, match="--metric-port"):
        group.commands["compactor"].make_context("compactor", ["--metric-port", "1"])


@pytest.mark.parametrize("name", ENV_FILES)
def test_files_of_settings_hold_no_secret(name: str) -> None:
    found = read_settings(DEPLOY / name)
    assert not set(found) & {*SECRETS, "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"}
    assert storage_options(found["TABLESTORE_STORAGE"])["region"]


def test_addresses_in_settings_are_services_of_compose() -> None:
    ports = {name: set(service.ports) for name, service in COMPOSE.items()}
    texts = [v for s in COMPOSE.values() for v in (*s.environment.values(), *s.command, *s.check)]
    found = {pair for text in texts for pair in re.findall(r"(?:^|[/@])([a-z][a-z0-9-]*):(\d+)\b", text)}
    assert ("s3", "7070") in found
    assert ("spark-master", "7077") in found
    wrong = [f"{name}:{port}" for name, port in found if int(port) not in ports.get(name, ()) and port != "9093"]
    assert wrong == []


def test_secrets_in_settings_are_those_that_services_get() -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    made = set(re.findall(r"^keep ([a-z0-9.-]+) ", (DEPLOY / "secrets.sh").read_text(), re.M))
    assert {Path(secret["file"]).name for secret in document["secrets"].values()} == made
    for name, service in document["services"].items():
        asked = set(
            re.findall(r"/run/secrets/([a-z0-9.-]+)", str((service.get("command"), service.get("environment"))))
        )
        of_service = service.get("secrets", ())
        assert asked <= {one if isinstance(one, str) else one["target"].partition("/")[0] for one in of_service}, name
        assert {one if isinstance(one, str) else one["source"] for one in of_service} <= made, name
    named = {
        v.rpartition("/")[2] for v in read_settings(DEPLOY / "settings.env").values() if v.startswith("/run/secrets")
    }
    assert named == set(document["services"]["service"]["secrets"])


@pytest.mark.parametrize(
    "service", [s for s in COMPOSE.values() if s.image.startswith("tablestore")], ids=lambda s: s.name
)
def test_our_containers_are_of_this_version_and_have_checks(service: Service) -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    assert service.image.endswith(f":{version[1]}")
    assert service.check or service.done_before or service.profiles


@pytest.mark.parametrize("service", COMPOSE.values(), ids=lambda s: s.name)
def test_images_are_pinned(service: Service) -> None:
    name, _, version = service.image.rpartition(":")
    assert name
    assert re.search(r"\d+\.\d+", version)


def test_a_secret_reaches_systemd_as_a_credential_only() -> None:
    for path in UNITS:
        text = path.read_text()
        loaded = set(re.findall(r"^LoadCredential=([a-z-]+):/etc/credstore/tablestore\.\1$", text, re.M))
        used = set(re.findall(r"^Environment=[A-Z_]+_FILE=%d/([a-z-]+)$", text, re.M))
        assert loaded == used != set()

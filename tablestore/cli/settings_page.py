"""``python -m tablestore.cli.settings_page`` prints SETTINGS.md from the code. A test compares the file with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer.main

from tablestore.cli.app import app
from tablestore.cli.secrets import FILE_SUFFIX, SECRETS

__all__ = ["FURTHER", "Setting", "page", "settings"]

_HEAD = """# Settings of processes

Each variable of the environment stands for an option of the command line, which goes over it; `tablestore COMMAND
--help` explains them, too. An empty variable is like none, except that an empty `TABLESTORE_TOKEN` is an error of the
service. Options of tables are another thing: [OPTIONS.md](../filestore/OPTIONS.md).

| variable | option | of | default | |
|---|---|---|---|---|
"""
_FURTHER = """
## Variables without an option
| variable | read by | |
|---|---|---|
"""
_WAREHOUSE = "for a warehouse that they open without a service"
_READ_BY_ALL = {
    "TABLESTORE_BROKERS": _WAREHOUSE,
    "TABLESTORE_COMMITS": _WAREHOUSE,
    "TABLESTORE_DATABASE": _WAREHOUSE,
    "TABLESTORE_STORAGE": "for S3; it goes over what a service says",
}
"""All commands read these variables, for what is said here."""

_SEVERAL = 3
"""An option of more commands than these is one of all of them: its table says so instead of naming each."""

FURTHER = (
    ("TABLESTORE_CA_FILE", "clients of a service", "a file (PEM) with the authorities that sign the service's TLS"),
    (
        "TABLESTORE_SECRETS",
        "every process that connects to Kafka or a schema registry",
        "which secrets tables may refer to, such as `env:KAFKA_*,file:/run/secrets/kafka-*`; default: "
        "`env:TABLESTORE_SECRET_*` ([Secrets](../docs/operating.md#secrets))",
    ),
    (
        "TABLESTORE_CACHE",
        "Spark's sessions, brokers of tests",
        "the folder of Spark's and Kafka's jars; default: `~/.cache/tablestore`",
    ),
    (
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
        "every process that opens tables in S3",
        "credentials. Roles of machines, pods and `~/.aws` work, too, in the order of AWS's tools",
    ),
    (
        "AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE, AWS_PROFILE",
        "the same",
        "files in AWS's format with credentials and profiles, such as a mounted secret",
    ),
    (
        "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION",
        "the same",
        "where S3 is, if `TABLESTORE_STORAGE` does not say so",
    ),
    (
        "AWS_CA_BUNDLE",
        "the same",
        "a file (PEM) with the authorities that sign the TLS of S3. Other readers, such as deltalake and polars, look "
        "into the file of `SSL_CERT_FILE`",
    ),
    (
        "AWS_EC2_METADATA_DISABLED",
        "the same",
        "`true`: there is no role of the machine to ask for, which else takes seconds where there is no such service",
    ),
)
"""Variables that no option stands for: names, readers, meaning."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable that stands for an option.

    Attributes:
        variable: Its name.
        option: The option, ``--token``.
        commands: The commands that have it, in the order of the help.
        default: The value without either; None if there is none.
        meaning: One sentence or more.
    """

    variable: str
    option: str
    commands: tuple[str, ...]
    default: str | None
    meaning: str


def settings() -> list[Setting]:
    """Returns the settings in the order in which the commands name them first: the service's own come first."""
    found: dict[str, Setting] = {}
    for name, command in sorted(_commands(typer.main.get_command(app)), key=lambda one: one[0] != "serve"):
        for option in command.params:
            variable = getattr(option, "envvar", None)
            if not variable:
                continue
            before = found.get(variable)
            found[variable] = Setting(
                variable=variable,
                option=max(option.opts, key=len),
                commands=(*before.commands, name) if before else (name,),
                default=before.default if before else _shown(option.default),
                meaning=before.meaning if before else option.help,
            )
    return list(found.values())


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _shown(default: object) -> str | None:
    if default is None or isinstance(default, (list, tuple)):
        return None
    return str(default).lower() if isinstance(default, bool) else str(default)


def page() -> str:
    """Returns the text of the page."""
    return _HEAD + "\n".join(map(_row, settings())) + "\n" + _FURTHER + "\n".join(_further()) + "\n"


def _row(setting: Setting) -> str:
    of = ", ".join(f"`{name}`" for name in setting.commands)
    if (purpose := _READ_BY_ALL.get(setting.variable)) is not None:
        of += f"; all other commands, {purpose}"
    if len(setting.commands) > _SEVERAL:
        of = "all commands that open a catalog"
    default = "" if setting.default is None else f"`{setting.default}`"
    variables = f"`{setting.variable}`"
    if setting.variable in SECRETS:
        variables += f", `{setting.variable}{FILE_SUFFIX}`"
    return f"| {variables} | `{setting.option}` | {of} | {default} | {setting.meaning.replace('|', chr(92) + '|')} |"


def _further() -> Iterator[str]:
    for names, readers, meaning in FURTHER:
        yield f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {readers} | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write(page())

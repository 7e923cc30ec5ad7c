"""Secrets from the environment: a variable holds the secret itself, or the one with ``_FILE`` behind it names its file.

Orchestrators hand secrets over as files (compose and Kubernetes as mounted secrets, systemd as credentials), because
every child of a process inherits its environment.
"""

from __future__ import annotations

import os
from pathlib import Path

import typer

__all__ = ["FILE_SUFFIX", "SECRETS", "secret", "secret_option"]

SECRETS = ("TABLESTORE_TOKEN", "TABLESTORE_DATABASE")
"""The variables whose value may be in a file. The URL of a database contains its password."""

FILE_SUFFIX = "_FILE"


def secret(name: str) -> str | None:
    """Returns the value of a variable, or the text of the file that ``<name>_FILE`` names; None if neither is set.

    A line break at the file's end, which editors and ``echo`` write, does not belong to the secret.

    Raises:
        typer.BadParameter: Both are set, or the file cannot be read.
    """
    value, path = os.environ.get(name), os.environ.get(name + FILE_SUFFIX)
    if not path:
        return value
    if value:
        raise typer.BadParameter(f"${name} and ${name}{FILE_SUFFIX} are both set: unset one of them")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"the file {path!r} of ${name}{FILE_SUFFIX} cannot be read: {error}") from error


def secret_option(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Returns an option's value as it was given, else that of its variable or of the variable's file."""
    source = context.get_parameter_source(str(parameter.name))
    if source is not None and source.name == "COMMANDLINE":
        return value
    # click treats an empty variable as unset, which for a service's token would mean no authentication
    return secret(str(parameter.envvar))

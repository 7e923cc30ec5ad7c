"""Secrets as options of the command line: from the environment, or from a file that it names."""

from __future__ import annotations

import typer

from filestore.errors import InvalidRequest
from filestore.secrets import FILE_SUFFIX
from filestore.secrets import secret as read_secret

__all__ = ["FILE_SUFFIX", "SECRETS", "secret", "secret_option"]

SECRETS = ("TABLESTORE_TOKEN", "TABLESTORE_DATABASE")
"""The variables whose value may be in a file. The URL of a database contains its password."""


def secret(name: str) -> str | None:
    """Returns `filestore.secrets.secret` of a variable.

    Raises:
        typer.BadParameter: Both it and the one of its file are set, or the file cannot be read.
    """
    try:
        return read_secret(name)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from error


def secret_option(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Returns an option's value as it was given, else that of its variable or of the variable's file."""
    source = context.get_parameter_source(str(parameter.name))
    if source is not None and source.name == "COMMANDLINE":
        return value
    # click treats an empty variable as unset, which for a service's token would mean no authentication
    return secret(str(parameter.envvar))

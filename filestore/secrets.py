"""Secrets from the environment: a variable holds the secret itself, or the one with ``_FILE`` behind it names its file.

Orchestrators hand secrets over as files (compose and Kubernetes as mounted secrets, systemd as credentials), because
every child of a process inherits its environment.
"""

from __future__ import annotations

import os
from pathlib import Path

from filestore.errors import InvalidRequest

__all__ = ["FILE_SUFFIX", "secret", "secret_in"]

FILE_SUFFIX = "_FILE"


def secret(name: str) -> str | None:
    """Returns the value of a variable, or the text of the file that ``<name>_FILE`` names; None if neither is set.

    Raises:
        InvalidRequest: ``bad-secret``: both are set, or the file cannot be read.
    """
    value, path = os.environ.get(name), os.environ.get(name + FILE_SUFFIX)
    if not path:
        return value
    if value:
        raise InvalidRequest(f"${name} and ${name}{FILE_SUFFIX} are both set: unset one of them", code="bad-secret")
    return secret_in(path, f" of ${name}{FILE_SUFFIX}")


def secret_in(path: str, whose: str = "") -> str:
    """Returns the text of a file. A line break at its end, which editors and ``echo`` write, does not belong to it.

    Args:
        path: The file.
        whose: What names it, for the error.

    Raises:
        InvalidRequest: ``bad-secret``: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the file {path!r}{whose} cannot be read: {error}", code="bad-secret") from error

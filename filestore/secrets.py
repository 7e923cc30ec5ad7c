"""Secrets of processes and of tables: variables of the environment and files hold them, and tables only refer to them.

A process finds its own in a variable, or in the file that the variable with ``_FILE`` behind it names. Orchestrators
hand secrets over as files (compose and Kubernetes as mounted secrets, systemd as credentials), because every child of a
process inherits its environment.

A table's options are in its Delta log, in the catalog and in many outputs. So they have references, ``${env:NAME}`` and
``${file:/path}`` as in Kafka's configuration providers (KIP-297), and each process that connects resolves them. Who may
create a table chooses the references and the brokers to which a password goes: a process resolves only what
``TABLESTORE_SECRETS`` allows (decision 126).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from filestore.errors import InvalidRequest

__all__ = [
    "ALLOWED_SECRETS",
    "FILE_SUFFIX",
    "allows_literals",
    "check_references",
    "holds_secret",
    "literal_secrets",
    "resolved",
    "secret",
    "secret_in",
    "shown",
]

FILE_SUFFIX = "_FILE"
ALLOWED_SECRETS = "TABLESTORE_SECRETS"
"""The variable with patterns of what tables may refer to, such as ``env:KAFKA_*,file:/run/secrets/kafka-*``."""

_DEFAULT_ALLOWED = "env:TABLESTORE_SECRET_*"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_SECRET = ("pass", "secret", "token", "user-info", "sasl.jaas.config", "sasl.oauthbearer.config", "key.pem")
_OF_QUERIES = (*_SECRET, "key", "sig", "auth", "credential")
_OF_CLIENTS = ("log.kafka.properties.", "properties.")
_OF_FORMATS = "avro-confluent."
_OF_REGISTRIES = ("basic-auth.user-info", "bearer-auth.token")
_REFERRED = "tablestore-reference"
"""Stands for a reference where a value is looked at; it can be any part of a URL."""
_ARMOR = re.compile(r"-----(BEGIN|END) [A-Z ]+-----(\\n)?|\\n(?=-----END )")
_LOGIN = re.compile(r"\s*[\w.$]+\s+(required|requisite|sufficient|optional)\s*;?\s*", re.IGNORECASE)
_LOGIN_OPTION = re.compile(r'([\w.-]+)\s*=\s*("[^"]*"|[^\s;"]+)')
_OF_LOGINS = ("pass", "secret", "token", "credential", "accesskey", "privatekey")


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


def resolved(text: str) -> str:
    """Returns a text with what its references refer to; other texts as they are.

    Raises:
        InvalidRequest: ``bad-secret``: this process may not resolve a reference, or it refers to nothing.
    """
    return _REFERENCE.sub(lambda found: _referred(found[1], found[2]), text)


def _referred(kind: str, name: str) -> str:
    reference = f"${{{kind}:{name}}}"
    patterns = os.environ.get(ALLOWED_SECRETS) or _DEFAULT_ALLOWED
    if not _is_allowed(kind, name, patterns):
        raise InvalidRequest(
            f"a table refers to the secret {reference}, and this process may only resolve {patterns}: name it in "
            f"${ALLOWED_SECRETS} if the table's owner may have it",
            code="bad-secret",
        )
    if kind == "file":
        return secret_in(name, f" of {reference}")
    value = os.environ.get(name)
    if not value:
        raise InvalidRequest(
            f"a table refers to the secret {reference}, and ${name} is not set for this process: set it",
            code="bad-secret",
        )
    return value


def _is_allowed(kind: str, name: str, patterns: str) -> bool:
    """Returns whether a pattern allows it. `*` stands for no ``/``, and a path has to be as short as it can be."""
    if kind == "file" and os.path.normpath(name) != name:
        return False
    for pattern in patterns.split(","):
        of_kind, _, names = pattern.strip().partition(":")
        parts, wanted = name.split("/"), names.split("/")
        if of_kind == kind and len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted)):
            return True
    return False


def holds_secret(name: str) -> bool:
    """Returns whether an option, or a property of a client, is a password, a token or a key by its name. Pure.

    Only these have references: clients quote the values of others in their errors and logs.
    """
    return any(word in name for word in _SECRET) and not name.endswith((".url", ".file", ".location"))


def literal_secrets(options: Mapping[str, str]) -> list[str]:
    """Returns the options whose value is or has a password, a token or a key itself, or a part of one. Pure.

    What stands beside a reference is no secret only where the form of the value says so: the user before ``:``, other
    parts of a URL, other options of a login module.
    """
    return sorted(name for name, value in options.items() if _is_literal(name, _REFERENCE.sub(_REFERRED, value)))


def allows_literals(options: Mapping[str, str]) -> bool:
    """Returns whether options of a table may hold passwords themselves."""
    return options.get("allow-literal-secrets", "false").lower() == "true"


def check_references(options: Mapping[str, str]) -> None:
    """Refuses secrets in options of a table, which its Delta log and the catalog would show: references are for them.

    Raises:
        InvalidRequest: ``literal-secret``; ``bad-secret``: a reference in an option that is no secret by its name.
    """
    for name, value in options.items():
        of_client = name.startswith(_OF_CLIENTS) or _OF_FORMATS in name
        if of_client and not holds_secret(name) and _REFERENCE.search(value):
            raise InvalidRequest(
                f"option {name!r} has a reference to a secret and is none itself: errors and logs of clients quote it. "
                "Write its value; a password, a token or a key has an option of its own",
                code="bad-secret",
            )
    if not allows_literals(options) and (found := literal_secrets(options)):
        raise InvalidRequest(
            f"option {found[0]!r} would be readable by whoever reads the table's metadata: refer to all of it, as in "
            f"${{env:TABLESTORE_SECRET_KAFKA}} or ${{file:/run/secrets/kafka}}, and let all processes that use the "
            f"table have that variable or file. allow-literal-secrets = true allows it all the same",
            code="literal-secret",
        )


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options, with stars instead of passwords, tokens and keys; references are shown."""
    hidden = set(literal_secrets(options))
    return {name: "****" if name in hidden else value for name, value in options.items()}


def _is_literal(name: str, value: str) -> bool:
    """Returns whether a value, with `_REFERRED` in the place of each reference, has a secret itself."""
    given = name.startswith(_OF_CLIENTS) and holds_secret(name)
    if not given and not name.endswith(_OF_REGISTRIES):
        return any(map(_has_secret, value.split(",")))
    if name.endswith("user-info"):
        _, colon, password = value.partition(":")
        return _is_written(password if colon else value)
    if name.endswith("jaas.config") and _REFERRED in value:
        return _logs_in_with_secret(value)
    return _is_written(_ARMOR.sub("", value))


def _is_written(text: str) -> bool:
    """Returns whether a secret, or a part of it, is written where only references may be."""
    return bool(text.replace(_REFERRED, "").strip())


def _logs_in_with_secret(login: str) -> bool:
    """Returns whether a JAAS configuration has a secret itself, or another form than ``module flag options;``."""
    for name, value in _LOGIN_OPTION.findall(login):
        secret = any(word in name.lower() for word in _OF_LOGINS)
        if secret and (text := value.strip('"')) not in ("true", "false") and _is_written(text):
            return True
    return _LOGIN.fullmatch(_LOGIN_OPTION.sub("", login)) is None


def _has_secret(url: str) -> bool:
    if "://" not in url:
        return False
    try:
        parts = urlsplit(url.strip())
        values = [parts.password or parts.username or ""]  # a user alone is a token
        values += [value for name, value in parse_qsl(parts.query) if any(word in name.lower() for word in _OF_QUERIES)]
        return any(map(_is_written, values))
    except ValueError:
        return False

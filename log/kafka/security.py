"""Reads addresses, TLS and login of our own connections from librdkafka's settings."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import NamedTuple

from filestore.errors import InvalidRequest, Unsupported

__all__ = ["Login", "check_security", "login_of", "parse_servers", "tls_of"]

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CERTIFICATES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
# Ways of librdkafka to say what `tls_of` takes from files of PEM.
_FOREIGN_TLS = frozenset({"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location"})


class Login(NamedTuple):
    """The login of a user by SASL."""

    mechanism: str
    username: str
    password: str


def check_security(settings: Mapping[str, str]) -> None:
    """Refuses what librdkafka could connect with and `log.kafka.connection.Connection` could not.

    Raises:
        InvalidRequest: ``log-properties``.
        Unsupported: ``log-sasl``; ``log-tls``: a key or certificate that is not in a file of PEM.
    """
    login_of(settings)
    if _protocol(settings).endswith("SSL") and (strange := sorted(_FOREIGN_TLS & settings.keys())):
        raise Unsupported(
            f"{strange[0]} cannot be used for ending transactions: name files of PEM with {', '.join(_CERTIFICATES)}",
            code="log-tls",
        )


def parse_servers(servers: str) -> list[tuple[str, int]]:
    """Hosts and ports of ``bootstrap.servers``; the port's default is 9092.

    Raises:
        InvalidRequest: ``log-servers``.
    """
    found = []
    for server in servers.split(","):
        text = server.strip()
        host, _, port = (text.partition("://")[2] or text).rpartition(":")
        if not host:
            host, port = port, "9092"
        if not port.isdecimal():
            raise InvalidRequest(f"Kafka broker {text!r} is not written as host:port", code="log-servers")
        found.append((host.strip("[]"), int(port)))
    return found


def login_of(settings: Mapping[str, str]) -> Login | None:
    """The login, if the protocol has one.

    Raises:
        InvalidRequest: ``log-properties``.
        Unsupported: ``log-sasl``.
    """
    if not _protocol(settings).startswith("SASL"):
        return None
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI"))
    if mechanism not in _MECHANISMS:
        raise Unsupported(
            f"SASL mechanism {mechanism} cannot be used for ending transactions: set sasl.mechanism to "
            f"{', '.join(_MECHANISMS)}, or use certificates (security.protocol = SSL)",
            code="log-sasl",
        )
    return Login(mechanism, settings.get("sasl.username", ""), settings.get("sasl.password", ""))


def tls_of(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    """Returns the TLS context of the settings; None if their protocol has no TLS.

    Raises:
        InvalidRequest: ``log-properties``; ``log-settings``: a file is not there, or no PEM.
    """
    if not _protocol(settings).endswith("SSL"):
        return None
    authority = settings.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=None if authority in (None, "probe") else authority)
        if certificate := settings.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password"))
    except OSError as error:
        named = ", ".join(f"{name} = {settings[name]}" for name in _CERTIFICATES if name in settings)
        raise InvalidRequest(
            f"TLS cannot be used with {named or 'the certificates of this machine'} ({error}): name files of PEM that "
            "this process can read",
            code="log-settings",
        ) from error
    if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _protocol(settings: Mapping[str, str]) -> str:
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise InvalidRequest(f"security.protocol {protocol!r} does not exist", code="log-properties")
    return protocol

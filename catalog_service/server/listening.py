"""The settings of a catalog service, and the socket at which it listens."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from catalog_service.server.security import check_exposure
from catalog_service.use_cases.broker_policy import ANY_BROKER, BrokerPolicy
from catalog_service.wire.bearer_token import checked_token
from filestore.errors import InvalidRequest, Unavailable
from filestore.process_log import LogFormat

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Settings", "bound", "check_settings"]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a service: where it listens, and which clients it serves.

    Attributes:
        host: The address to listen at.
        port: The port; 0 means any free one.
        database: The catalog's database; ``<warehouse>/catalog.db`` if None, which needs a local disk.
        storage_options: How to reach a warehouse in S3.
        commits: Who keeps commits apart: `catalog_service.database.held_commits.HeldCommits`.
        token: The token that requests must send; None: they need none.
        insecure: Whether other machines may reach it without a token.
        tls_cert: A file of certificates (PEM), the service's own first; None: no TLS.
        tls_key: The file of its key (PEM); None: the key is in the file of certificates.
        broker_policy: Which brokers tables may name.
        brokers: The brokers of tables whose log is in Kafka and that name none; None: such tables have to name some.
        log_level: What the process logs: ``info`` has a line for each request.
        log_format: ``text``: lines on standard error; ``json``: JSON lines on standard output.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    database: str | None = field(default=None, repr=False)  # it may contain a password
    storage_options: Mapping[str, str] = field(default_factory=dict)
    commits: str | None = None
    token: str | None = field(default=None, repr=False)
    insecure: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    broker_policy: BrokerPolicy = ANY_BROKER
    brokers: str | None = None
    log_level: str = "info"
    log_format: str = LogFormat.text

    @property
    def scheme(self) -> str:
        """The scheme of the service's URL."""
        return "http" if self.tls_cert is None else "https"


def check_settings(settings: Settings) -> None:
    """Checks what can be checked before anything is opened.

    Raises:
        InvalidRequest: ``token-empty``, ``bad-token``, ``tls-files``.
    """
    if settings.token is not None:
        checked_token(settings.token)
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise InvalidRequest("a TLS key needs its certificate: pass --tls-cert, too", code="tls-files")
        return
    try:
        # An encrypted key would ask for its password on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password=b"")
    except (OSError, ValueError) as error:
        files = " and ".join(filter(None, (settings.tls_cert, settings.tls_key)))
        raise InvalidRequest(
            f"cannot use {files} for TLS: {error}; pass files in PEM that belong together, the key without a password",
            code="tls-files",
        ) from error


def bound(settings: Settings) -> socket.socket:
    """Returns a socket that is bound to the address, and does not listen yet.

    Raises:
        InvalidRequest: ``token-needed``.
        Unavailable: ``port-in-use``.
    """
    host, port = settings.host, settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        check_exposure(host, str(address[0]), settings.token, insecure=settings.insecure)
        with ExitStack() as failed:
            # asyncio switches Nagle's algorithm off only for a socket that names its protocol: with it each answer
            # would wait 40 ms for the client's acknowledgement.
            listener = failed.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            failed.pop_all()
    except OSError as error:
        raise Unavailable(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port, or 0 for any free one",
            code="port-in-use",
        ) from error
    return listener

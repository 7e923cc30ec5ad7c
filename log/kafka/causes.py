"""Finds out why a client has no connection: a request only times out, but ``error_cb`` gets librdkafka's reasons.

A cause that no waiting repairs ends a request at once, as a `LastingError`; others are part of its error in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError

from filestore.errors import InvalidRequest, TableStoreError, Unsupported
from log.kafka.security import parse_servers

__all__ = ["Causes", "Lasting", "LastingError", "spoken_protocol"]

_SURE = 2
"""A login or a certificate that is refused twice will be refused again."""
_PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Lasting:
    """A cause for which there is no connection until settings are changed.

    Attributes:
        kind: The error's class.
        code: Its code.
        reason: What happened, and what to do.
    """

    kind: type[TableStoreError]
    code: str
    reason: str


class LastingError(Exception):
    """A connection failed for a cause that another attempt does not remove."""

    def __init__(self, cause: Lasting) -> None:
        super().__init__(cause.reason)
        self.cause = cause


@dataclass(slots=True)
class Causes:
    """Collects what a client reports about its connections during a request; `notice` is its ``error_cb``."""

    _texts: dict[int, str] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)
    down: int = 0
    """The number of times that no broker at all was connected."""

    def clear(self) -> None:
        """Forgets the reports of before a request."""
        self._texts.clear()
        self._counts.clear()
        self.down = 0

    def notice(self, error: KafkaError) -> None:
        """Keeps a report; the client's ``error_cb``."""
        code = error.code()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self.down += 1
            return
        self._texts[code] = error.str()
        self._counts[code] = self._counts.get(code, 0) + 1

    @property
    def text(self) -> str:
        """The reasons, the last of each kind."""
        return "; ".join(self._texts.values())

    @property
    def lasting(self) -> Lasting | None:
        """The cause, if no broker is connected and nothing but a change of settings helps."""
        found = [_judged(code, text) for code, text in self._texts.items()]
        if not self.down or not found or None in found or max(self._counts.values()) < _SURE:
            return None
        return found[0]

    @property
    def wordless(self) -> bool:
        """Returns whether brokers end connections without a reason: the port may speak another protocol."""
        return self.down > 0 and all(_is_hang_up(code, text) for code, text in self._texts.items())


def _is_hang_up(code: int, text: str) -> bool:
    return code == KafkaError._TRANSPORT and ("SSL_HANDSHAKE" in text or "SSL handshake failed" in text)


def _judged(code: int, text: str) -> Lasting | None:
    """Returns the lasting cause that a report means; None if the problem may pass."""
    if code == KafkaError._AUTHENTICATION:
        if "Unsupported SASL mechanism" in text:
            return Lasting(Unsupported, "log-sasl", f"{text}: set sasl.mechanism to one that the broker offers")
        if "SASL state" in text:
            return Lasting(
                InvalidRequest,
                "log-settings",
                f"{text}: this port asks for no login: set security.protocol to PLAINTEXT or SSL, or name another port",
            )
        return Lasting(InvalidRequest, "log-not-authorized", f"{text}: check sasl.username and sasl.password")
    if code == KafkaError._SSL:
        return Lasting(
            InvalidRequest,
            "log-settings",
            f"{text}: check ssl.ca.location, and that bootstrap.servers has a name of the broker's certificate",
        )
    if code == KafkaError._RESOLVE and "emporary" not in text:
        return Lasting(
            InvalidRequest,
            "log-servers",
            f"{text}: correct the name in bootstrap.servers, or in the brokers' advertised.listeners",
        )
    return None


def spoken_protocol(settings: Mapping[str, Any]) -> Lasting | None:
    """Finds which ``security.protocol`` the first server that answers has, if the settings have another.

    Each protocol is tried with a SASL handshake, which listeners with and without login answer differently.
    """
    chosen = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    for server in parse_servers(str(settings["bootstrap.servers"])):
        for protocol in ("PLAINTEXT", "SSL"):
            asks_login = _asks_login(server, protocol)
            if asks_login is None:
                continue
            spoken = f"SASL_{protocol}" if asks_login else protocol
            if spoken == chosen:
                return None
            return Lasting(
                InvalidRequest,
                "log-settings",
                f"the port {server[0]}:{server[1]} wants security.protocol = {spoken}, and it is {chosen}: set that "
                "with what belongs to it (ssl.ca.location, sasl.mechanism, sasl.username, sasl.password), or name "
                "another port",
            )
    return None


def _asks_login(server: tuple[str, int], protocol: str) -> bool | None:
    """Returns whether a listener that speaks the protocol asks for a login; None if none answers so."""
    # They take 0.2 s to import, and only a port that hangs up needs them here.
    from log.kafka.connection import Connection
    from log.kafka.wire import SaslHandshakeRequest

    settings = {"security.protocol": protocol, "enable.ssl.certificate.verification": "false"}
    try:
        connection = Connection(server, settings, _PROBE_SECONDS)
    except OSError:
        return None
    try:
        response = connection.request(SaslHandshakeRequest(mechanism="PLAIN", version=1))
        return bool(response.error_code != KafkaError.ILLEGAL_SASL_STATE)
    except OSError:
        return None
    finally:
        connection.close()

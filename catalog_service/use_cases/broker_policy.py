"""Decides which brokers tables may name, and which settings of Kafka's client they may have. Pure.

A request to create a table names brokers, and the service connects to them from its own place in the network. So its
administrator may limit them, and every service refuses settings of the client that run programs or load libraries.
A process that opens a warehouse by its path acts with its own rights, and has no such limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from catalog_service.wire.tables import CreateTable
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from log.connector.declaration import KafkaDeclaration
from log.connector.options import CONNECTOR
from log.connector.properties import named_brokers

__all__ = ["ANY_BROKER", "BrokerPolicy", "names_broker"]

_SERVERS = "bootstrap.servers"
_ALIAS = "metadata.broker.list"  # librdkafka's older name of it
_URL = "sasl.oauthbearer.token.endpoint.url"
_PROGRAMS = frozenset(
    {"plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers", "https.ca.location"}
)
_TIMEOUT = "socket.timeout.ms"
_TIMEOUT_MAX_MS = 60_000
_PORT = ":9092"
_ADDRESS = r"\[[0-9A-Fa-f:.]+\]"  # IPv6
_PATTERN = re.compile(rf"(?:[A-Za-z0-9_.*\-]+|{_ADDRESS})(?::(?:\d{{1,5}}|\*))?")
_LABEL = "[a-z0-9_-]+"
_ANY_HOST = rf"(?:[a-z0-9_.-]+|{_ADDRESS})"


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """The brokers that a service allows tables to name.

    Attributes:
        brokers: Patterns such as ``broker:9092``, ``*.kafka.internal:9092`` or ``10.0.0.7``; None: any broker. A ``*``
            stands for characters of one label of a host name, so not for a dot; alone it is any host or port.
    """

    brokers: tuple[str, ...] | None = None

    @classmethod
    def of(cls, patterns: Sequence[str]) -> BrokerPolicy:
        """Makes a policy from an administrator's patterns; without a pattern any broker is allowed.

        Raises:
            InvalidRequest: ``bad-broker-pattern``.
        """
        for pattern in patterns:
            if not _PATTERN.fullmatch(pattern):
                raise InvalidRequest(
                    f"{pattern!r} is not a pattern of brokers: write HOST, HOST:PORT or *.DOMAIN:PORT",
                    code="bad-broker-pattern",
                )
        return cls(tuple(p.lower() for p in patterns) or None)

    def check(self, definition: TableDefinition | KafkaDeclaration) -> None:
        """Refuses a table that names a broker or a setting that is not allowed.

        Raises:
            InvalidRequest: ``broker-not-allowed``, ``client-property``.
        """
        options = definition.options if isinstance(definition, KafkaDeclaration) else definition.options.as_dict()
        self.check_options(options)

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks options alone; those that name no broker and no setting of the client pass."""
        for name, value in options.items():
            setting = _client_setting(name)
            if setting in _PROGRAMS:
                raise InvalidRequest(
                    f"option {name!r} makes Kafka's client load or run a program, which a catalog service refuses: "
                    "leave it out",
                    code="client-property",
                )
            if setting == _TIMEOUT and value.isdigit() and int(value) > _TIMEOUT_MAX_MS:
                raise InvalidRequest(
                    f"option {name!r} = {value} is more than {_TIMEOUT_MAX_MS}: a catalog service waits for a broker "
                    "for a minute at most",
                    code="client-property",
                )
            for broker in _named(setting, value):
                self._check_broker(broker)

    def _check_broker(self, broker: str) -> None:
        if self.brokers is None or any(_matches(broker, pattern) for pattern in self.brokers):
            return
        raise InvalidRequest(
            f"this service does not connect to {broker}: name one of {', '.join(self.brokers)}, or ask its "
            "administrator to allow it with --allow-broker",
            code="broker-not-allowed",
        )


ANY_BROKER = BrokerPolicy()


def names_broker(request: CreateTable) -> bool:
    """Returns whether creating the table may have to wait for a broker."""
    return CONNECTOR in request.options or request.options.get("log.system") == "kafka"


def _client_setting(option: str) -> str:
    """The name of the Kafka client's setting that a table's option sets; empty for other options."""
    for prefix in ("log.kafka.properties.", "log.kafka.", "properties."):
        if option.startswith(prefix):
            return option.removeprefix(prefix)
    return ""


def _named(setting: str, value: str) -> Iterator[str]:
    if setting in (_SERVERS, _ALIAS):
        for broker in sorted(named_brokers(value)):
            # IMPORTANT: the first `://`, as librdkafka takes it: of `ssl://evil:1/://broker` it calls `evil:1`.
            yield _with_port(broker.partition("://")[2] or broker)
    elif setting == _URL:
        parts = urlsplit(value)
        yield f"{parts.hostname or ''}:{parts.port or 443}"


def _matches(broker: str, pattern: str) -> bool:
    # IMPORTANT: `*` must stand for no other characters: of `ssl://evil:1/a.my.net:9092` librdkafka calls `evil:1`.
    host, _, port = (pattern if _has_port(pattern) else f"{pattern}:*").rpartition(":")
    hosts = _ANY_HOST if host == "*" else re.escape(host).replace(r"\*", _LABEL)
    return re.fullmatch(f"{hosts}:{r'[0-9]+' if port == '*' else port}", broker) is not None


def _has_port(text: str) -> bool:
    return ":" in text.rpartition("]")[2]


def _with_port(broker: str) -> str:
    return broker if _has_port(broker) else broker + _PORT

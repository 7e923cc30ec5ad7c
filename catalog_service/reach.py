"""Which hosts a service calls because a table names them, and what a table may have Kafka's client do. Pure.

A request to make a table names brokers, and the service connects to them from its own place in the network. So its
administrator may say which ones, and some settings of the client are refused by every service: those that run programs
or load libraries. Whoever opens a warehouse by its path acts with rights of their own, and is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from catalog_service.wire import CreateTable
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from log.connectors.declaration import KafkaDeclaration
from log.connectors.options import CONNECTOR
from log.connectors.properties import named_brokers

__all__ = ["ANY_BROKER", "Reach", "names_broker"]

_SERVERS = "bootstrap.servers"
_ALIAS = "metadata.broker.list"  # librdkafka's older name of it
_URL = "sasl.oauthbearer.token.endpoint.url"
_PROGRAMS = frozenset(
    {"plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers", "https.ca.location"}
)
_TIMEOUT = "socket.timeout.ms"
_TIMEOUT_MAX_MS = 60_000
_PORT = ":9092"
_PATTERN = re.compile(r"(?:\*|\*\.)?[A-Za-z0-9_.\-]+(?::(?:\d{1,5}|\*))?|\*|\[[0-9A-Fa-f:.]+\](?::(?:\d{1,5}|\*))?")


@dataclass(frozen=True, slots=True)
class Reach:
    """What a service allows tables to name.

    Attributes:
        brokers: Patterns such as ``broker:9092``, ``*.kafka.internal:9092`` or ``10.0.0.7``; None: any broker.
    """

    brokers: tuple[str, ...] | None = None

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Reach:
        """From what an administrator wrote; no pattern: any broker.

        Raises:
            InvalidRequest: ``bad-broker-pattern``.
        """
        for pattern in patterns:
            if not _PATTERN.fullmatch(pattern):
                raise InvalidRequest(
                    f"{pattern!r} names no brokers: write HOST, HOST:PORT or *.DOMAIN:PORT", code="bad-broker-pattern"
                )
        return cls(tuple(p.lower() for p in patterns) or None)

    def check(self, definition: TableDefinition | KafkaDeclaration) -> None:
        """Refuses a table that names what this service does not call.

        Raises:
            InvalidRequest: ``broker-not-allowed``, ``client-property``.
        """
        options = definition.options if isinstance(definition, KafkaDeclaration) else definition.options.as_dict()
        self.check_options(options)

    def check_options(self, options: Mapping[str, str]) -> None:
        """The same of options alone; those that name nothing pass."""
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
                    f"option {name!r} = {value} is more than {_TIMEOUT_MAX_MS}: a catalog service waits a minute for a "
                    "broker, at most",
                    code="client-property",
                )
            for broker in _named(setting, value):
                self._check_broker(broker)

    def _check_broker(self, broker: str) -> None:
        if self.brokers is None or any(_matches(broker, pattern) for pattern in self.brokers):
            return
        raise InvalidRequest(
            f"this service does not call {broker}: name one of {', '.join(self.brokers)}, or ask its administrator to "
            "allow it with --allow-broker",
            code="broker-not-allowed",
        )


ANY_BROKER = Reach()


def names_broker(request: CreateTable) -> bool:
    """Whether to make the table may mean to wait for a broker."""
    return CONNECTOR in request.options or request.options.get("log.system") == "kafka"


def _client_setting(option: str) -> str:
    """The name that Kafka's client has for an option of a table; empty if it is none of the client's."""
    for prefix in ("log.kafka.properties.", "log.kafka.", "properties."):
        if option.startswith(prefix):
            return option.removeprefix(prefix)
    return ""


def _named(setting: str, value: str) -> Iterator[str]:
    if setting in (_SERVERS, _ALIAS):
        for broker in sorted(named_brokers(value)):
            yield _with_port(broker.rpartition("://")[2])
    elif setting == _URL:
        parts = urlsplit(value)
        yield f"{parts.hostname or ''}:{parts.port or 443}"


def _matches(broker: str, pattern: str) -> bool:
    # fnmatch would read an IPv6 address's brackets as a set of characters
    return fnmatchcase(broker.replace("[", "<"), (pattern if _has_port(pattern) else f"{pattern}:*").replace("[", "<"))


def _has_port(text: str) -> bool:
    return ":" in text.rpartition("]")[2]


def _with_port(broker: str) -> str:
    return broker if _has_port(broker) else broker + _PORT

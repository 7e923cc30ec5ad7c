"""Bounds the service's connections: how many there are, and how many of a client that has not shown a token.

A connection costs a file, and whoever reaches the port can open many and say nothing. So a connection that has shown no
token may be ended for a newer one: the oldest first, of its own network if that has too many, else of all. Clients
send their request at once, so they are served also while somebody opens connections without an end.
"""

from __future__ import annotations

import ipaddress
import resource
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["CONNECTION", "Connection", "Connections", "most_connections", "network_of"]

CONNECTION = "tablestore.connection"
"""The extension of a request's scope that has its connection, under the same name."""
CONNECTIONS_MAX = 4096
UNKNOWN_MAX = 128
"""The most connections of a network that have shown no token."""

_OTHER_FILES = 256
"""Files that the process keeps for its database, its stores and its brokers."""


def most_connections() -> int:
    """Returns how many connections the process may have, by its limit of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(16, min(CONNECTIONS_MAX, files - _OTHER_FILES, files // 2))


def network_of(address: str) -> str:
    """Returns the network that counts as one client: an IPv4 address, or the 64 bits that a host of IPv6 has. Pure."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a socket of the machine has no address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


@dataclass(eq=False, slots=True)
class Connection:
    """A connection.

    Attributes:
        network: Where it is from (`network_of`).
        end: Ends it; it is gone a moment later.
        known: Whether it has sent a request with the token, or the service needs none.
    """

    network: str
    end: Callable[[], object]
    known: bool = False
    _registry: Connections | None = field(default=None, repr=False)

    def trust(self) -> None:
        """Notes that it has shown the token, so that it is not ended for others."""
        if not self.known and self._registry is not None:
            self._registry.trust(self)

    def gone(self) -> None:
        """Notes that it has ended."""
        if self._registry is not None:
            self._registry.remove(self)


class Connections:
    """The connections of a service.

    Args:
        most: How many there may be.
        most_unknown: How many of a network may have shown no token.

    Attributes:
        ended: How many were ended for newer ones, or had no room.
    """

    def __init__(self, most: int, most_unknown: int = UNKNOWN_MAX) -> None:
        self._most = most
        self._most_unknown = min(most_unknown, max(1, most // 2))
        self.ended = 0
        self._open: set[Connection] = set()
        self._unknown: dict[Connection, None] = {}  # the oldest first, as in each of the networks
        self._of_network: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Takes a new connection, and ends an older one where there are too many.

        Returns:
            False if there is no room: all others have shown the token.
        """
        own = self._of_network.get(connection.network, {})
        if len(own) >= self._most_unknown:
            self._end(next(iter(own)))
        elif len(self._open) >= self._most:
            if not self._unknown:
                self.ended += 1
                return False
            self._end(next(iter(self._unknown)))
        connection._registry = self
        self._open.add(connection)
        self._unknown[connection] = None
        self._of_network.setdefault(connection.network, {})[connection] = None
        return True

    def trust(self, connection: Connection) -> None:
        """Notes that a connection has shown the token."""
        connection.known = True
        self._forget(connection)

    def remove(self, connection: Connection) -> None:
        """Notes that a connection has ended."""
        self._open.discard(connection)
        self._forget(connection)

    def _end(self, connection: Connection) -> None:
        self._forget(connection)
        self.ended += 1
        connection.end()

    def _forget(self, connection: Connection) -> None:
        if connection not in self._unknown:
            return
        del self._unknown[connection]
        own = self._of_network[connection.network]
        del own[connection]
        if not own:
            del self._of_network[connection.network]

"""Accepts connections within the bounds of `catalog_service.server.connections`, before anything is read of them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from catalog_service.server.connections import Connection, Connections, network_of
from catalog_service.server.heads import HEAD_SECONDS_MAX, BoundedHeads

__all__ = ["Acceptor"]

_BACKLOG = 2048
_PAUSE_S = 1.0
_REPORTS_S = 60.0

logger = logging.getLogger(__name__)


class Acceptor:
    """Takes connections of a listening socket, and gives each a protocol.

    An event loop's own server asks nobody before it takes a connection, and for TLS not before the handshake has ended.

    Args:
        listener: The socket, which is bound and does not listen yet.
        connections: Their bounds.
        protocol: Makes the protocol of a connection.
        tls: The service's certificate; None without TLS.
    """

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        protocol: Callable[[Connection], BoundedHeads],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._protocol = protocol
        self._tls = tls
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._reported = 0
        self._report_s = 0.0

    def start(self) -> None:
        """Begins to accept. REQUIRES: the caller is in the event loop."""
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def stop(self) -> None:
        """Accepts no more, and ends connections whose handshake has not ended."""
        tasks = [task for task in (self._accepting, *self._handshakes) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listener)
            except OSError as error:  # as when no file is left, or the client has gone
                logger.warning("no connection is accepted: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            self._begin(accepted, str(address[0]) if isinstance(address, tuple) else "")
            self._report(loop.time())
            await asyncio.sleep(0)  # so that connections that were ended are closed before more are taken

    def _begin(self, accepted: socket.socket, address: str) -> None:
        connection = Connection(network_of(address), lambda: _shut_down(accepted))
        if not self._connections.admit(connection):
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._handshake(accepted, connection))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _report(self, now_s: float) -> None:
        """Logs that connections were ended, once a minute: whoever opens them must not fill the log, too."""
        ended = self._connections.ended
        if ended > self._reported and now_s >= self._report_s:
            logger.warning(
                "%d connections were ended for newer ones, since there are %d, or too many of one address that have "
                "sent no token",
                ended - self._reported,
                len(self._connections),
            )
            self._reported, self._report_s = ended, now_s + _REPORTS_S

    async def _handshake(self, accepted: socket.socket, connection: Connection) -> None:
        protocol, made = self._protocol(connection), False
        timeout = None if self._tls is None else HEAD_SECONDS_MAX
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=timeout
            )
            made = True
        except OSError as error:  # a wrong certificate, another protocol, a time-out
            logger.debug("no connection with %s: %s", connection.network, error)
        finally:
            if not made:
                connection.gone()
                accepted.close()


def _shut_down(accepted: socket.socket) -> None:
    """Ends a connection before it has a transport, which closes the socket then."""
    with suppress(OSError):  # the client was faster
        accepted.shutdown(socket.SHUT_RDWR)

"""Runs the catalog service as a process (`run`, for ``tablestore serve``) or in a thread (`serving`)."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from catalog_service.server.accepting import Acceptor
from catalog_service.server.app import create_app
from catalog_service.server.connections import Connection, Connections, most_connections
from catalog_service.server.heads import BoundedHeads
from catalog_service.server.listening import Settings, bound, check_settings
from catalog_service.server.stopping import RunningRequests
from catalog_service.use_cases.opening import open_service, warehouse_and_database
from filestore.errors import TableStoreError, Unavailable
from filestore.process_log import LogFormat, fields, log_to

__all__ = ["run", "serving"]

_GRACE_S = 5.0  # less than the 10 s after which Docker kills a process
_KEEP_ALIVE_S = 75  # longer than clients keep a connection, so that none sends into one that is being closed

logger = logging.getLogger(__name__)


def run(warehouse: str, settings: Settings | None = None, *, announce: Callable[[str], None] | None = None) -> None:
    """Serves until SIGINT or SIGTERM, then answers the running requests and returns.

    Args:
        warehouse: The folder of the databases, a path or a URL; it is created if it does not exist.
        settings: Where to listen, for which clients, and with which catalog.
        announce: It gets one line with the URL once requests are answered; by default the line is printed, or logged if
            the log is JSON lines.

    Raises:
        InvalidRequest: ``token-empty``, ``bad-token``, ``token-needed``, ``tls-files``.
        Unsupported: ``database-pooling``, or those of `open_service`.
        Unavailable: ``port-in-use``, or those of `open_service`.
    """
    settings = settings or Settings()
    log_to(settings.log_format)
    logging.getLogger("catalog_service").setLevel(settings.log_level.upper())
    with _listening(warehouse, settings, log_config=None) as (server, url):
        where, _ = warehouse_and_database(warehouse, settings.database)
        line = f"Tablestore catalog at {url} (warehouse {where}); Ctrl-C stops it"
        server.on_started = lambda: (announce or _announcing(settings, url))(line)
        signal.signal(signal.SIGTERM, _exit)  # uvicorn raises the signal again after its graceful stop
        try:
            server.run(sockets=[server.socket])
        except KeyboardInterrupt:
            return


@contextmanager
def serving(warehouse: str, settings: Settings | None = None, **more: Any) -> Iterator[str]:
    """Serves from a thread of this process while the block runs; yields the URL.

    Args:
        warehouse: The folder of the databases, a path or a URL; it is created if it does not exist.
        settings: The settings as for `run`; by default loopback and any free port.
        more: Single settings by name, instead of `settings`.

    Raises:
        InvalidRequest: as `run`.
        Unavailable: as `run`.
    """
    with _listening(warehouse, settings or Settings(**{"port": 0, **more})) as (server, url):
        started = threading.Event()
        server.on_started = started.set
        thread = threading.Thread(target=server.run, args=([server.socket],), name="catalog", daemon=True)
        thread.start()
        try:
            while not started.wait(0.05):
                if not thread.is_alive():
                    raise Unavailable(f"the catalog service at {url} did not start: its log has the reason")
            yield url
        finally:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    """Accepts connections itself, reports when it begins to answer, and ends requests when their time is over."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, running: RunningRequests) -> None:
        super().__init__(config)
        self.socket = listener
        self.on_started: Callable[[], object] = lambda: None
        self._running = running
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        if self.started:
            bounds = Connections(most_connections())
            self._acceptor = Acceptor(self.socket, bounds, self._protocol, self.config.ssl)
            self._acceptor.start()
            self.on_started()

    def _protocol(self, connection: Connection) -> BoundedHeads:
        return BoundedHeads(
            connection, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        waited = asyncio.get_running_loop().call_later(_GRACE_S, self._running.stop)
        if self._acceptor is not None:
            await self._acceptor.stop()
        try:
            await super().shutdown(sockets)
        finally:
            waited.cancel()
            self._running.stop()  # a second Ctrl-C ends the wait


@contextmanager
def _listening(warehouse: str, settings: Settings, **logs: Any) -> Iterator[tuple[_Server, str]]:
    check_settings(settings)
    # The port is bound first: a second service on one port must not open the catalog.
    with bound(settings) as listener:
        service = open_service(
            *warehouse_and_database(warehouse, settings.database),
            broker_policy=settings.broker_policy,
            storage_options=settings.storage_options,
            brokers=settings.brokers,
            commits=settings.commits,
        )
        try:
            service.check_locks()
        except TableStoreError:
            service.close()
            raise
        app = create_app(service, settings.token)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            http=BoundedHeads,
            ws="none",  # there is nothing to upgrade to, and another protocol would have none of the bounds
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=round(_GRACE_S) + 2,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            **logs,
        )
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"{settings.scheme}://{shown}:{listener.getsockname()[1]}"
        yield _Server(config, listener, app.state.running), url


def _announcing(settings: Settings, url: str) -> Callable[[str], None]:
    if settings.log_format == LogFormat.json:  # each line of standard output is JSON
        return lambda line: logger.info("%s", line, extra=fields(url=url))
    return _print


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _exit(_: int, __: FrameType | None) -> None:
    sys.exit(0)

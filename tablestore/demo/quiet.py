"""Redirects Spark's output to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["errors_to"]


@contextmanager
def errors_to(file: Path) -> Iterator[None]:
    """Redirects standard error to the file. A process that starts meanwhile, such as a JVM, writes there for ever."""
    sys.stderr.flush()
    before = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)

"""The command of ``deploy/local.sh``."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from deploy.local.machine import Deployment, PartEnded, deployed

_USAGE = "deploy/local.sh [--without SERVICE]… [COMMAND …]"
_ABOUT = """Starts the parts of deploy/compose.yaml on this machine, without containers: runs a command with their
settings, or waits for Ctrl-C; then stops all. It needs `make env jars`; data and logs are in a folder that is removed
at the end."""


def main(arguments: Sequence[str]) -> int:
    """Returns the command's exit code, or 1 if a part did not start."""
    parser = argparse.ArgumentParser(usage=_USAGE, description=_ABOUT)
    parser.add_argument(
        "--without", metavar="SERVICE", action="append", default=[], help="leave this service out; may be repeated"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run, such as: tablestore tables")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupted)  # then the parts stop in their order, too
    try:
        with tempfile.TemporaryDirectory(prefix="tablestore-local-") as folder:
            _note(f"logs are in {folder}")
            with deployed(Path(folder), given.without, say=_note) as deployment:
                return deployment.run(given.command) if given.command else _wait(deployment)
    except PartEnded as error:
        _note(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _wait(deployment: Deployment) -> int:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(deployment.environment.items())]
    lines = [line for line in lines if line.startswith(("export TABLESTORE_", "export AWS_", "export SPARK_"))]
    try:  # Ctrl-C may come as soon as somebody has read a line
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        _note("all parts run: use them from another terminal with these variables; Ctrl-C stops them")
        signal.pause()
    except KeyboardInterrupt:
        return 0
    return 0


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _interrupted(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

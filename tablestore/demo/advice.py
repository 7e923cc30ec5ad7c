"""Commands to try after the demo, to be copied from the terminal."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from tablestore.demo.data import DATABASE

__all__ = ["next_commands"]


def next_commands(catalog: str, folder: Path | None = None) -> list[str]:
    """Commands for the tables of the demo, to be run in the folder and with the variables with which it was started.

    Args:
        catalog: The catalog's path or URL.
        folder: The warehouse's folder on this machine, where other programs read the tables, too.
    """
    tablestore = _own_name()
    question = "\"month = 1 AND day = 3 AND dest = 'SEA'\""
    commands = [
        f"export TABLESTORE_CATALOG={shlex.quote(catalog)}",
        f"{tablestore} tables",
        f"{tablestore} describe nyc.flights",
        f"{tablestore} snapshots nyc.flights --limit 5",
        f"{tablestore} scan nyc.flights --where {question} --columns carrier,flight,sched_dep_time,dep_delay,arr_delay",
        f"{tablestore} follow nyc.airlines              # in another terminal; Ctrl-C stops it",
        f"""echo '{{"carrier": "ZZ", "name": "Example Air"}}' | {tablestore} write nyc.airlines -""",
        f"{tablestore} refresh nyc.landed",
        f"{tablestore} compact nyc.flights --full",
        f"{tablestore} doctor nyc.flights",
    ]
    if folder is None:
        return commands
    flights = f"pl.scan_delta('{folder}/{DATABASE}/flights')"
    return [
        *commands,
        f"{tablestore} serve --warehouse {shlex.quote(catalog)}       # over REST, for --catalog http://127.0.0.1:8080",
        f"""{_python()} -c "import polars as pl; print({flights}.group_by('carrier').len().collect())\"""",
    ]


def _own_name() -> str:
    """The command that starts this program: its name if the shell finds it, else its path."""
    found, own = shutil.which("tablestore"), Path(sys.argv[0])
    if found is not None and Path(found).resolve() == own.resolve():
        return "tablestore"
    return f"{_python()} -m tablestore.cli" if own.name == "__main__.py" else _from_here(own)


def _python() -> str:
    found = shutil.which("python")
    return "python" if found is not None and Path(found).samefile(sys.executable) else _from_here(Path(sys.executable))


def _from_here(path: Path) -> str:
    absolute = Path.cwd() / path
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)

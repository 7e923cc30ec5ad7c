"""Writers in processes of their own, to be killed.

Run as a module it is such a writer: it reads its plan from standard input, writes one line for each transaction to
standard output, and then waits for its end.
"""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from filestore.ambient import system_ambient
from filestore.model.log_range import LogTransaction
from log.table.config import LogConfig
from log.table.systems import open_log

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Plan:
    """What a writing process does."""

    config: LogConfig
    transaction_ids: Sequence[str]
    buckets: Sequence[int]
    rows: int
    prepare: bool


class WriterProcess:
    """A process that writes and then waits; leaving it kills it."""

    def __init__(
        self,
        config: LogConfig,
        *transaction_ids: str,
        buckets: Sequence[int],
        rows: int,
        prepare: bool = True,
    ) -> None:
        plan = Plan(config, transaction_ids, tuple(buckets), rows, prepare)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.log.table.processes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        data = pickle.dumps(plan)
        self._process.stdin.write(len(data).to_bytes(8, "big") + data)
        self._process.stdin.flush()

    def prepared(self) -> LogTransaction:
        """The next transaction, once it is prepared."""
        return LogTransaction.from_json(json.loads(self._line()))

    def appended(self) -> None:
        """Waits until its rows were handed to the log."""
        assert self._line() == b"appended\n"

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the writer ended with code {self._process.wait()}"
        return line


def write_in_processes(
    config: LogConfig, transaction_ids: Sequence[Sequence[str]], *, buckets: Sequence[int], rows: int
) -> list[LogTransaction]:
    """Prepares all those transactions, each list in a process of its own, all at once."""
    processes = [WriterProcess(config, *ids, buckets=buckets, rows=rows) for ids in transaction_ids]
    found = []
    for process, ids in zip(processes, transaction_ids, strict=True):
        with process:
            found += [process.prepared() for _ in ids]
    return found


def _main() -> None:
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    plan: Plan = pickle.loads(sys.stdin.buffer.read(size))
    rows = pa.table(
        {
            "id": pa.array(range(plan.rows), pa.int64()),
            "name": [f"name {i}" for i in range(plan.rows)],
            "price": pa.array(range(plan.rows), pa.int32()).cast(pa.decimal128(20, 2)),
            "_kind": ["+I"] * plan.rows,
        }
    )
    with open_log(plan.config, system_ambient()) as log:
        for transaction_id in plan.transaction_ids:
            writer = log.begin(transaction_id)
            for bucket in plan.buckets:
                writer.append(bucket, rows.slice(0, plan.rows // 2))
                writer.append(bucket, rows.slice(plan.rows // 2))
            transaction = writer.prepare() if plan.prepare else None
            print("appended" if transaction is None else json.dumps(transaction.to_json()), flush=True)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    sys.modules["tests.log.table.processes"] = sys.modules["__main__"]  # for the pickled plan
    _main()

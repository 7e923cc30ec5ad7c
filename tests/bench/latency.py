"""``python -m tests.bench.latency [--writes N]``: how soon `follow` emits what was written, what a log costs a commit.

A process writes single rows that carry the time; another follows, and a bare pair of clients does the same with bytes
on the same broker. The delay of follow counts from when the log has the row (eventual), or its commit; the write itself
is not part of it. Then a table with a log and one without take turns at commits of one row. The report shows each
goal beside the measured value; the exit status is 1 if a row is missing, while a missed goal is only shown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore import Table
from tests.processes import PROCESSES
from tests.servers.kafka import KafkaBroker

PAUSE_S = 0.05
WARM = 10
BARE = "bare clients"
KAFKA, EMBEDDED = {"log.system": "kafka"}, {"log.system": "embedded"}
EVENTUAL, PLAIN = {"log.consistency": "eventual"}, {"log.kafka.transactions": "false"}
TABLES: Mapping[str, Mapping[str, str]] = {
    "eventual, kafka": KAFKA | EVENTUAL,
    "eventual, embedded": EMBEDDED | EVENTUAL,
    "transactional, kafka": KAFKA,
    "transactional, kafka, plain": KAFKA | PLAIN,
    "transactional, embedded": EMBEDDED,
}
ASKED = {"eventual, kafka": (10.0, 50.0), "eventual, embedded": (10.0, 50.0)}
COMMITS: Mapping[str, Mapping[str, str]] = {"no log": {}, **{name: TABLES[name] for name in list(TABLES)[2:]}}
ASKED_COMMIT_MS = 150.0


@dataclass(frozen=True)
class Delays:
    """Milliseconds, one for each write."""

    found: np.ndarray

    def of(self, percent: float) -> float:
        return float(np.percentile(self.found, percent))


def make(warehouse: str, name: str, bootstrap: str, options: Mapping[str, str]) -> Table:
    servers = {"log.kafka.bootstrap.servers": bootstrap} if options.get("log.system") == "kafka" else {}
    return tablestore.connect(warehouse).create_table(
        name, "id BIGINT, at BIGINT", primary_key=["id"], options={"bucket": "1", **options, **servers}
    )


def write_one(table: Table, number: int) -> float:
    """Writes a row that carries the time; returns the milliseconds that this took."""
    begin = time.monotonic_ns()
    table.write(pl.DataFrame({"id": [number], "at": [begin]}))
    return (time.monotonic_ns() - begin) / 1e6


# ------------------------------------------------------------------------------------------------- who writes


def write_rows(warehouse: str, name: str, count: int, ready: Any) -> None:
    table = tablestore.connect(warehouse).table(name)
    ready.wait()
    for number in range(count):
        write_one(table, number)
        time.sleep(PAUSE_S)


def send_bytes(bootstrap: str, topic: str, count: int, ready: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    ready.wait()
    for number in range(count):
        producer.produce(topic, str(time.monotonic_ns()).encode(), str(number).encode())
        producer.flush()
        time.sleep(PAUSE_S)


# ------------------------------------------------------------------------------------------------- who reads


def followed(warehouse: str, name: str, count: int) -> tuple[Delays, Delays]:
    """Returns how long each row took to arrive: since its write began, and since the log or the commit had it."""
    ready, found, behind = PROCESSES.Event(), list[float](), list[float]()
    writer = PROCESSES.Process(target=write_rows, args=(warehouse, name, count, ready))
    writer.start()
    with tablestore.connect(warehouse).table(name).follow(version=0) as changes:
        ready.set()
        for batch in changes:
            now = time.monotonic_ns()
            found += [(now - at) / 1e6 for at in batch["at"].to_pylist()]
            behind += [float(changes.progress.latency_ms or 0)] * batch.num_rows
            if len(found) >= count:
                break
    writer.join()
    return measured(found, count), measured(behind, count)


def consumed(bootstrap: str, topic: str, count: int) -> Delays:
    ready, found = PROCESSES.Event(), list[float]()
    writer = PROCESSES.Process(target=send_bytes, args=(bootstrap, topic, count, ready))
    writer.start()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": str(uuid.uuid4()), "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])
    ready.set()
    while len(found) < count:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append((time.monotonic_ns() - int(message.value() or b"0")) / 1e6)
    consumer.close()
    writer.join()
    return measured(found, count)


def measured(found: Sequence[float], count: int) -> Delays:
    if len(found) != count:
        raise SystemExit(f"{len(found)} rows arrived, and {count} were written")
    return Delays(np.array(found[WARM:]))


# -------------------------------------------------------------------------------------------------- the report


def latencies(warehouse: str, broker: KafkaBroker, writes: int, console: Console) -> None:
    topic = f"bare.{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    bare = consumed(broker.bootstrap, topic, writes)
    found = {BARE: (bare, bare)}
    for number, (name, options) in enumerate(TABLES.items()):
        table = f"bench.follow_{number}"
        make(warehouse, table, broker.bootstrap, options)
        found[name] = followed(warehouse, table, writes)
    shown = Printed("ms until follow has it", "p50 of write", "p99", "p50 of log", "p99", "asked")
    for name, delays in found.items():
        asked = "{:.0f}, {:.0f}".format(*ASKED[name]) if name in ASKED else ""
        shown.add_row(name, *(f"{delay.of(percent):.1f}" for delay in delays for percent in (50, 99)), asked)
    console.print(shown)


def commits(warehouse: str, broker: KafkaBroker, writes: int, console: Console) -> None:
    tables = {
        name: make(warehouse, f"bench.commit_{number}", broker.bootstrap, options)
        for number, (name, options) in enumerate(COMMITS.items())
    }
    taken: dict[str, list[float]] = {name: [] for name in tables}
    for number in range(writes):
        for name, table in tables.items():
            taken[name].append(write_one(table, number))
            time.sleep(PAUSE_S)
    medians = {name: float(np.median(values[WARM:])) for name, values in taken.items()}
    shown = Printed("an idle commit of one row", "median, ms", "more than without a log", "asked")
    for name, value in medians.items():
        more = value - medians["no log"]
        asked = f"≤ {ASKED_COMMIT_MS:.0f}" if name == "transactional, kafka" else ""
        shown.add_row(name, f"{value:.0f}", f"{more:+.0f}" if name != "no log" else "", asked)
    console.print(shown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.latency", description=__doc__)
    parser.add_argument("--writes", type=int, default=200)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tablestore-bench-latency-") as folder, KafkaBroker(Path(folder)) as broker:
        warehouse = str(Path(folder) / "warehouse")
        tablestore.connect(warehouse).create_database("bench")
        latencies(warehouse, broker, arguments.writes, console)
        commits(warehouse, broker, max(arguments.writes // 4, WARM + 10), console)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.bench.log [--rows N] [--rounds K]``: the table's log on Kafka beside bare clients on one broker.

Each round all take turns on topics of their own, with the same bytes: rows of the `orders` workload as our log spells
them. Ours encodes or decodes them as well, prepares its transaction and ends it. Ratios of medians of messages a second
are printed beside what is asked of them. Exit status 1 if a message is missing; a missed ratio is shown, not hidden.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ForeignPartition
from rich.console import Console
from rich.table import Table as Printed

from filestore.ambient import system_ambient
from filestore.model.log_range import LogTransaction
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Schema
from log.table.config import LogConfig
from log.table.log_record import DebeziumJson
from log.table.store import LogStore
from log.table.systems import open_log
from tests.servers.kafka import KafkaBroker

BUCKETS = 4
CHUNK = 65_536
FOREIGN_SHARE = 10
"""kafka-python is given one message in so many: it takes ten times as long."""
OURS, BARE, FOREIGN = "tablestore", "confluent loop", "kafka-python"
OURS_PLAIN, BARE_TRANSACTION = "tablestore, no transaction", "confluent loop, transaction"


@dataclass
class Rates:
    """Messages a second, by what was done and who did it."""

    found: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def take(self, stage: str, who: str, messages: int, work: Callable[[], object]) -> object:
        begin = time.perf_counter()
        result = work()
        self.found[stage, who].append(messages / (time.perf_counter() - begin))
        return result

    def median(self, stage: str, who: str) -> float:
        return statistics.median(self.found[stage, who])


@dataclass(frozen=True)
class Messages:
    """Rows of one bucket, and what they are as messages."""

    rows: pa.Table
    keys: Sequence[bytes]
    values: Sequence[bytes]


def rows_of(first: int, count: int) -> pa.Table:
    """Rows whose JSON has about 200 bytes."""
    dice = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    columns = {
        "order_id": pa.array(ids),
        "customer_id": pa.array(dice.integers(0, 1_000_000, count)),
        "product_id": pa.array(dice.integers(0, 100_000, count), pa.int32()),
        "status": pa.array(["DELIVERED"] * count),
        "amount": pa.array(np.round(dice.random(count) * 1000, 2)),
        "note": pa.array([f"left at the door of number {i % 977}" for i in ids.tolist()]),
        "region": pa.array(["eu-west"] * count),
    }
    return pa.table(columns).append_column(KIND_COLUMN, pa.repeat("+I", count))


def config_of(broker: KafkaBroker, number: int, schema: Schema, *, transactions: bool = True) -> LogConfig:
    return LogConfig(
        system="kafka",
        database="bench",
        table="orders",
        table_id=f"bench-{number}",
        schema=schema,
        primary_key=("order_id",),
        buckets=BUCKETS,
        location="",
        topic=f"bench.{number}",
        bootstrap_servers=broker.bootstrap,
        transactions=transactions,
    )


def encoded(config: LogConfig, parts: Sequence[pa.Table]) -> list[Messages]:
    form = DebeziumJson(config)
    found = []
    for part in parts:
        keys, values = list[bytes](), list[bytes]()
        for at in range(0, part.num_rows, CHUNK):
            messages = form.encode(part.slice(at, CHUNK), f"{config.table_id}/c/0.0", at, 1_795_275_000_000)
            assert messages.keys is not None
            keys += messages.keys.to_list()
            values += messages.values.to_list()
        found.append(Messages(part, keys, values))
    return found


# ------------------------------------------------------------------------------------------------- who writes


def ours(log: LogStore, config: LogConfig, parts: Sequence[Messages]) -> LogTransaction:
    """Encodes, produces, prepares and ends."""
    writer = log.begin(f"{config.table_id}/commit/0.0")
    for bucket, part in enumerate(parts):
        for at in range(0, part.rows.num_rows, CHUNK):
            writer.append(bucket, part.rows.slice(at, CHUNK))
    transaction = writer.prepare()
    assert transaction is not None
    log.end([transaction], commit=True)
    return transaction


def bare(broker: KafkaBroker, topic: str, parts: Sequence[Messages], *, transaction: bool) -> None:
    """The loop that anyone would write, with bytes that are ready."""
    settings: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 5,  # ours takes 50, as it may: nobody sees a record before the snapshot
        "queue.buffering.max.messages": 1_000_000,
        # as the log sets it: or `init_transactions` waits for timers, 60 or 500 ms, that are no part of producing
        "enable.sparse.connections": "false",
    }
    producer = Producer(settings | ({"transactional.id": topic} if transaction else {}))
    if transaction:
        producer.init_transactions()
        producer.begin_transaction()
    for bucket, part in enumerate(parts):
        for key, value in zip(part.keys, part.values, strict=True):
            while True:
                try:
                    producer.produce(topic, value, key, bucket)
                    break
                except BufferError:
                    producer.poll(0.01)
    if transaction:
        producer.commit_transaction()
    if left := producer.flush(60):
        raise SystemExit(f"{left} messages were not sent")


def foreign(broker: KafkaBroker, topic: str, parts: Sequence[Messages]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5)
    for bucket, part in enumerate(parts):
        share = len(part.values) // FOREIGN_SHARE
        for key, value in zip(part.keys[:share], part.values[:share], strict=True):
            producer.send(topic, value, key, partition=bucket)
    producer.flush()
    producer.close()


# -------------------------------------------------------------------------------------------------- who reads


def our_reader(log: LogStore, transaction: LogTransaction) -> int:
    return sum(batch.rows.num_rows for batch in log.read([transaction]))


def bare_reader(broker: KafkaBroker, topic: str, wanted: int) -> int:
    """Takes values and does nothing with them."""
    settings: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 5,  # or it would stand still for a second whenever its queue is full
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, bucket, 0) for bucket in range(BUCKETS)])
    found = 0
    while found < wanted:
        found += sum(message.value() is not None for message in consumer.consume(10_000, 0.1))
    consumer.close()
    return found


def foreign_reader(broker: KafkaBroker, topic: str, wanted: int) -> int:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    places = [ForeignPartition(topic, bucket) for bucket in range(BUCKETS)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    found = 0
    while found < wanted:
        found += sum(len(some) for some in consumer.poll(1000, max_records=10_000).values())
    consumer.close()
    return found


# --------------------------------------------------------------------------------------------------- the rounds


def run(broker: KafkaBroker, rows: int, rounds: int, rates: Rates) -> None:
    parts = [rows_of(bucket * rows, rows // BUCKETS) for bucket in range(BUCKETS)]
    schema = Schema.from_arrow(parts[0].drop_columns([KIND_COLUMN]).schema)
    count = sum(part.num_rows for part in parts)
    few = count // FOREIGN_SHARE
    for turn in range(rounds):
        configs = [config_of(broker, 10 * turn + who, schema, transactions=who < 4) for who in range(5)]
        logs = [open_log(config, system_ambient()) for config in configs]
        for log in logs:
            log.create()
        messages = encoded(configs[0], parts)
        topics = [str(config.topic) for config in configs]
        rates.take("produce", BARE, count, lambda t=topics[1], m=messages: bare(broker, t, m, transaction=False))
        transaction = rates.take("produce", OURS, count, lambda log=logs[0], c=configs[0], m=messages: ours(log, c, m))
        rates.take(
            "produce", BARE_TRANSACTION, count, lambda t=topics[2], m=messages: bare(broker, t, m, transaction=True)
        )
        rates.take("produce", OURS_PLAIN, count, lambda log=logs[4], c=configs[4], m=messages: ours(log, c, m))
        rates.take("produce", FOREIGN, few, lambda t=topics[3], m=messages: foreign(broker, t, m))
        assert isinstance(transaction, LogTransaction)
        found = [
            rates.take("consume", OURS, count, lambda log=logs[0], t=transaction: our_reader(log, t)),
            rates.take("consume", BARE, count, lambda t=topics[1]: bare_reader(broker, t, count)),
        ]
        rates.take("consume", FOREIGN, few, lambda t=topics[3]: foreign_reader(broker, t, few))
        if found != [count, count]:
            raise SystemExit(f"{found} messages were read, and {count} written")
        for log in logs:
            log.drop()
            log.close()


def report(rates: Rates, size: int, console: Console) -> None:
    table = Printed("stage", "who", "messages a second", "best")
    for (stage, who), values in rates.found.items():
        table.add_row(stage, who, f"{statistics.median(values):,.0f}", f"{max(values):,.0f}")
    console.print(table)
    ratios = Printed("ratio", "measured", "asked")
    for stage, who, other, wanted in (
        ("produce", OURS, BARE_TRANSACTION, "≥ 0.8"),
        ("produce", OURS_PLAIN, BARE, "≥ 0.8"),
        ("produce", OURS, FOREIGN, ""),
        ("consume", OURS, BARE, "≥ 0.4"),
        ("consume", OURS, FOREIGN, ""),
    ):
        ratio = rates.median(stage, who) / rates.median(stage, other)
        ratios.add_row(f"{stage}: {who} / {other}", f"{ratio:.2f}", wanted)
    console.print(ratios)
    console.print(f"messages of {size} bytes on average")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.log", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    console, rates = Console(), Rates()
    with tempfile.TemporaryDirectory(prefix="tablestore-bench-log-") as folder, KafkaBroker(Path(folder)) as broker:
        run(broker, 40_000, 1, Rates())  # warms the broker
        run(broker, arguments.rows, arguments.rounds, rates)
        sample = rows_of(0, 1000)
        schema = Schema.from_arrow(sample.drop_columns([KIND_COLUMN]).schema)
        values = encoded(config_of(broker, 0, schema), [sample])[0].values
        report(rates, sum(map(len, values)) // len(values), console)
    return 0


if __name__ == "__main__":
    sys.exit(main())

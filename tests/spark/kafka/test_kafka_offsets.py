"""Offsets of streams of Kafka tables: every message is in one batch, even if batches are planned again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from log.connector.ranges import PartitionRange
from tablestore.following.result_mode import ResultMode
from tablestore.spark.kafka.offsets import KafkaOffset
from tablestore.spark.kafka.options import KafkaRead, kafka_read
from tests.log.connector.tables import UPSERT, declared

GROWTH = st.lists(st.dictionaries(st.integers(0, 12), st.integers(0, 9), max_size=4), max_size=5)


def written(offset: KafkaOffset) -> KafkaOffset:
    """As it comes back from a checkpoint."""
    return KafkaOffset.of(json.loads(json.dumps(offset.to_json())))


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 20), min_size=1, max_size=4), GROWTH, st.integers(1, 7))
def test_each_message_is_in_one_batch(begin: Mapping[int, int], growth: list[dict[int, int]], most: int) -> None:
    """Partitions come later, too; and before its first batch is done a restarted query begins elsewhere."""
    at = first = KafkaOffset.initial("t", "id", begin)
    ends, seen = dict(begin), list[tuple[int, int]]()
    for grown in growth:
        for partition, count in grown.items():
            ends[partition] = ends.get(partition, 0) + count
        end = written(at.advanced(ends, most, discovers=True))
        start = KafkaOffset.initial("t", "id", ends) if at is first else at
        seen += [(r.partition, offset) for r in end.since(start) for offset in range(r.start, r.end)]
        at = end
    seen += [(r.partition, o) for r in at.advanced(ends, None, discovers=True).since(at) for o in range(r.start, r.end)]
    assert sorted(seen) == [(p, o) for p in sorted(ends) for o in range(begin.get(p, 0), ends[p])]


def test_texts_are_equal_if_nothing_arrived_and_partitions_may_stay_unknown() -> None:
    at = KafkaOffset.initial("t", "id", {2: 1, 10: 4, 1: 0})
    ends = {10: 4, 2: 1, 1: 0, 3: 9}
    assert json.dumps(at.advanced(ends, 5, discovers=False).to_json()) == json.dumps(at.to_json())
    assert at.advanced(ends, 5, discovers=True).offsets == {1: 0, 2: 1, 3: 5, 10: 4}


def test_what_is_read_travels_as_options() -> None:
    table = declared("`a-b` BIGINT NOT NULL, at TIMESTAMP METADATA FROM 'timestamp', PRIMARY KEY (`a-b`)", UPSERT)
    asked = KafkaRead(table, ("at", "a-b"), (PartitionRange(3, 4, 5), PartitionRange(4, 0, 0)), 7, 9)
    assert kafka_read({name.lower(): value for name, value in asked.to_options().items()}) == asked
    assert kafka_read(KafkaRead(table).to_options()) == KafkaRead(table)
    skipping = kafka_read(KafkaRead(table).to_options() | {"scan.malformed-records": "skip"})
    assert skipping is not None
    assert skipping.declaration == table.with_scan({"scan.malformed-records": "skip"})
    for bad in ({"maxRowsPerBatch": "0"}, {"maxRecordsPerTask": "x"}, {"scan.nope": "1"}):
        with pytest.raises(InvalidRequest):
            kafka_read(KafkaRead(table).to_options() | bad)
    assert kafka_read({"path": "shop.orders", "location": "/tmp/x", "catalog": "x"}) is None


def test_a_stream_of_complete_changes_is_cut_though_nobody_says_so() -> None:
    table = declared("id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)", UPSERT)
    assert KafkaRead(table).most_rows is None
    changes = KafkaRead(table, mode=ResultMode.CHANGELOG, state="/tmp/x")
    assert changes.most_rows == 1_000_000
    assert replace(changes, rows_per_batch=7).most_rows == 7

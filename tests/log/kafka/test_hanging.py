"""Transactions that hang in one partition are ended as their coordinator has ended them (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.ambient import system_ambient
from filestore.model.log_range import LogTransaction
from log.kafka.hanging import missing_markers
from log.kafka.transactions import Marker, ProducerState
from log.table.config import LogConfig
from log.table.on_kafka.store import KafkaLog
from tests.conformance.log_store import changes, prepared, transaction_id
from tests.depth import sampled
from tests.late_records import CARELESS, write_late
from tests.log.table.foreign import foreign_ids, kafka_config
from tests.servers.kafka import KafkaBroker


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that takes records of a transaction after its end, as brokers before KIP-890 did."""
    with KafkaBroker(tmp_path_factory.mktemp("careless"), CARELESS) as broker:
        yield broker


@pytest.fixture
def config(careless: KafkaBroker) -> LogConfig:
    return kafka_config(careless)


@pytest.fixture
def log(config: LogConfig) -> Iterator[KafkaLog]:
    with KafkaLog(config, system_ambient()) as log:
        log.create()
        yield log


def hanging(log: KafkaLog, config: LogConfig, *, commit: bool) -> LogTransaction:
    """A transaction that has ended in bucket 0 and is open for ever in bucket 1."""
    transaction = prepared(log, config, 0, changes([1, 2]))
    log.end([transaction], commit=commit)
    write_late(config, 1, transaction, changes([7]))
    assert log.stable_offsets()[1] == 0 < log.end_offsets()[1]
    return transaction


@pytest.mark.kafka
@pytest.mark.parametrize("commit", sampled([True, False], 2, test=2))
def test_what_hangs_ends_as_its_coordinator_says(log: KafkaLog, config: LogConfig, commit: bool) -> None:
    transaction = hanging(log, config, commit=commit)
    assert log.end([transaction], commit=commit).ended == (transaction.id,)  # which helps nobody
    assert log.abort_unnamed(lambda ids: ids) == []
    assert log.stable_offsets()[1] == 0
    assert log.end_hanging() == [transaction.id]
    assert log.stable_offsets() == log.end_offsets()
    assert foreign_ids(config) == ([1, 2, 7] if commit else [])
    assert log.end_hanging() == []


@pytest.mark.kafka
def test_what_is_open_or_anothers_is_left_alone(log: KafkaLog, config: LogConfig) -> None:
    transaction = hanging(log, config, commit=True)
    living = log.begin(transaction_id(config))
    living.append(2, changes([3]))
    found = living.prepare()
    assert found is not None
    with KafkaLog(replace(config, table_id="another"), system_ambient()) as another:
        assert another.end_hanging() == []
    assert log.end_hanging() == [transaction.id]
    assert log.stable_offsets()[2] == 0
    log.end([found], commit=True)


STATES = st.sampled_from(["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"])
STORED = st.dictionaries(
    st.integers(0, 2),
    st.dictionaries(
        st.integers(0, 3), st.builds(ProducerState, st.just(0), st.just(1), st.integers(-1, 1), st.just(-1))
    ),
)


@given(STORED, st.dictionaries(st.integers(0, 3), st.tuples(st.sampled_from(["own/1", "other/1"]), STATES)), STORED)
def test_only_what_was_open_before_and_after_its_end_gets_a_marker(
    before: dict[int, dict[int, ProducerState]],
    known: dict[int, tuple[str, str]],
    after: dict[int, dict[int, ProducerState]],
) -> None:
    found = list(missing_markers(before, known, after, "own/"))
    expected = [
        (known[producer][0], Marker(partition, producer, 0, 0, known[producer][1] == "CompleteCommit"))
        for partition in range(3)
        for producer in range(4)
        if known.get(producer, ("", ""))[1].startswith("Complete")
        and known[producer][0] == "own/1"
        and (states := [held.get(partition, {}).get(producer) for held in (before, after)])
        and all(state is not None and state.first_offset >= 0 for state in states)
        and states[0] == states[1]
    ]
    assert found == expected

"""Reads and ends Kafka's transactions from outside their producer (PROTOCOL.md section 7.3; KIP-98, KIP-664).

librdkafka can end a transaction only through the producer that began it. But EndTxn is an ordinary request:
whoever knows the transactional id, the producer id and the epoch may send it. That is how any process ends
what a snapshot names after the writer has died. KIP-939 (two-phase commit) would be the official way and has
no usable client in any release.

The versions below are old ones that Kafka 3.0 and later speak; tested with 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filestore.ambient import Ambient
from filestore.errors import Unavailable
from log.kafka.requests import Address, Requests, lasting_code, require_ok
from log.kafka.wire import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MemoryRecords,
    WriteTxnMarkersRequest,
    errors,
)

__all__ = ["FENCED_STATES", "OK", "Marker", "ProducerState", "TransactionClient", "TransactionState"]

OK = 0

FENCED_STATES = ("Empty", "Dead")
"""The states of an id that a new producer has taken or given up: they do not say how its last transaction ended."""

_UNCOMMITTED = 0
_ONE_BATCH = 1  # byte: brokers answer with a whole batch, however large (KIP-74)
_FENCING_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The coordinator's state of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int
    since_ms: int = -1
    """The begin of its transaction; -1 if none is open."""

    @property
    def committed(self) -> bool:
        """Returns whether its last transaction was, or is being, committed."""
        return self.state in ("CompleteCommit", "PrepareCommit")

    @property
    def aborted(self) -> bool:
        """Returns whether its last transaction was, or is being, aborted."""
        return self.state in ("CompleteAbort", "PrepareAbort", "PrepareEpochFence", "Dead", "Empty")


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of a producer, as a partition's leader knows it.

    Attributes:
        records: How many it has stored of this producer and epoch.
        first_offset: Where the open transaction begins; -1 if none is open.
        coordinator_epoch: That of the coordinator whose marker it has seen last; -1 if it has seen none.
    """

    producer_epoch: int
    records: int
    first_offset: int
    coordinator_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker that ends a producer's open transaction in a partition (KIP-98).

    Attributes:
        partition: Where it is written.
        producer_id: Whose transaction it ends.
        producer_epoch: The one that the partition knows.
        coordinator_epoch: It must not be less than what the partition has seen.
        commit: How it has ended.
    """

    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


class TransactionClient:
    """Asks transaction coordinators and partition leaders. One thread at a time.

    Args:
        servers: ``bootstrap.servers``.
        settings: librdkafka's security settings.
        timeout: For each answer, seconds.
        ambient: Waits between retries.
    """

    def __init__(self, servers: str, settings: Mapping[str, str], timeout: float, ambient: Ambient) -> None:
        self._requests = Requests(servers, settings, timeout, ambient)

    def end(self, transaction_id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        """Sends EndTxn; returns Kafka's error code, 0 also if it had been ended so before."""
        request = EndTxnRequest(
            transactional_id=transaction_id, producer_id=producer_id, producer_epoch=epoch, committed=commit, version=1
        )
        return self._requests.at_coordinator(transaction_id, request, lasting_code)

    def describe(self, transaction_id: str) -> TransactionState | None:
        """The coordinator's state of an id; None if it knows none (never used, or expired after its end)."""

        def found(response: Any) -> TransactionState | None:
            (state,) = response.transaction_states
            if lasting_code(state) == errors.TransactionalIdNotFoundError.errno:
                return None
            require_ok(state)
            return TransactionState(
                state.transaction_state, state.producer_id, state.producer_epoch, state.transaction_start_time_ms
            )

        request = DescribeTransactionsRequest(transactional_ids=[transaction_id], version=0)
        return self._requests.at_coordinator(transaction_id, request, found)

    def fence(self, transaction_id: str) -> None:
        """Aborts what is open and raises the epoch.

        A writer that still lives can add nothing more (KIP-98).
        """
        request = InitProducerIdRequest(
            transactional_id=transaction_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS, version=1
        )
        self._requests.at_coordinator(transaction_id, request, require_ok)

    def list_open(self, brokers: Sequence[Address], prefix: str) -> list[str]:
        """Ids with that prefix whose transactions are open, from all brokers, since each coordinates some."""
        listed = self._list(brokers, states=["Ongoing"], producer_ids=[])
        return sorted({one.transactional_id for one in listed if one.transactional_id.startswith(prefix)})

    def list_of(self, brokers: Sequence[Address], producer_ids: Collection[int]) -> dict[int, tuple[str, str]]:
        """Returns transactional id and state by producer id, of the producers that a coordinator knows."""
        listed = self._list(brokers, states=[], producer_ids=[*producer_ids])
        return {one.producer_id: (one.transactional_id, one.transaction_state) for one in listed}

    def _list(self, brokers: Sequence[Address], *, states: list[str], producer_ids: list[int]) -> list[Any]:
        def found(response: Any) -> list[Any]:
            require_ok(response)
            return [*response.transaction_states]

        request = ListTransactionsRequest(state_filters=states, producer_id_filters=producer_ids, version=0)
        return [one for broker in brokers for one in self._requests.at(broker, request, found)]

    def write_marker(self, leader: Address, topic: str, marker: Marker) -> None:
        """Ends a transaction in one partition, whatever its coordinator thinks (KIP-664).

        REQUIRES: the coordinator has ended it the same way.

        Raises:
            InvalidRequest: ``log-not-authorized``: it takes the right to ALTER the cluster.
        """
        kind = WriteTxnMarkersRequest.WritableTxnMarker
        asked = kind(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            topics=[kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[marker.partition])],
            coordinator_epoch=marker.coordinator_epoch,
        )

        def written(response: Any) -> None:
            require_ok(response.markers[0].topics[0].partitions[0])

        self._requests.at(leader, WriteTxnMarkersRequest(markers=[asked], version=1), written)

    def producers(self, leaders: Mapping[Address, Sequence[int]], topic: str) -> dict[int, dict[int, ProducerState]]:
        """Returns the producers' states in each partition, by partition and producer id.

        Args:
            leaders: Partitions by the broker that leads them.
            topic: Their topic.
        """
        found: dict[int, dict[int, ProducerState]] = {}
        for leader, partitions in leaders.items():
            asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[*partitions])
            found |= self._requests.at(leader, DescribeProducersRequest(topics=[asked], version=0), _producers)
        return found

    def producer_of(self, leader: Address, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Returns id and epoch of the producer that wrote a record: they stand at the head of its batch.

        Raises:
            Unavailable: ``log-delivery``: there is no such record.
        """
        kind = FetchRequest.FetchTopic
        part = kind.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_ONE_BATCH)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_ONE_BATCH,
            isolation_level=_UNCOMMITTED,
            topics=[kind(topic=topic, partitions=[part])],
            version=4,
        )

        def found(response: Any) -> tuple[int, int]:
            answer = response.responses[0].partitions[0]
            require_ok(answer)
            records = MemoryRecords(answer.records or b"")
            if not records.has_next():
                raise Unavailable(
                    f"partition {partition} of topic {topic!r} has no record at offset {offset}", code="log-delivery"
                )
            batch = records.next_batch()
            return batch.producer_id, batch.producer_epoch

        return self._requests.at(leader, request, found)

    def close(self) -> None:
        """Closes the connections; a later call makes new ones."""
        self._requests.close()


def _producers(response: Any) -> dict[int, dict[int, ProducerState]]:
    found = {}
    for partition in response.topics[0].partitions:
        require_ok(partition)
        found[partition.partition_index] = {
            one.producer_id: ProducerState(
                one.producer_epoch, one.last_sequence + 1, one.current_txn_start_offset, one.coordinator_epoch
            )
            for one in partition.active_producers
        }
    return found

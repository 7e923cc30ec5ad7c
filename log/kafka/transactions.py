"""Kafka's transactions from outside their producer (PROTOCOL.md section 7.3; KIP-98, KIP-664).

librdkafka can end a transaction only through the producer that began it. But EndTxn is an ordinary request:
whoever knows the transactional id, the producer id and the epoch may send it. That is how any process ends
what a snapshot names after the writer has died. KIP-939 (two-phase commit) would be the official way and has
no usable client in any release.

The versions below are old ones that Kafka 3.0 and later speak; tested with 4.3.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from filestore.ambient import Ambient
from filestore.errors import Unavailable
from log.kafka.connection import Reader, Writer
from log.kafka.requests import Address, Request, Requests, require_ok, settled

__all__ = ["Marker", "ProducerState", "TransactionClient", "TransactionState"]

_FETCH = 1
_INIT_PRODUCER_ID = 22
_END_TXN = 26
_WRITE_TXN_MARKERS = 27
_DESCRIBE_PRODUCERS = 61
_DESCRIBE_TRANSACTIONS = 65
_LIST_TRANSACTIONS = 66

OK = 0
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105

_UNCOMMITTED = 0
_HEAD_BYTES = 61
_FENCING_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What the coordinator knows of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int
    since_ms: int = -1
    """When its transaction began; -1 if none is open."""

    @property
    def committed(self) -> bool:
        """Whether its last transaction was, or is being, committed."""
        return self.state in ("CompleteCommit", "PrepareCommit")

    @property
    def aborted(self) -> bool:
        """Whether its last transaction was, or is being, aborted."""
        return self.state in ("CompleteAbort", "PrepareAbort", "PrepareEpochFence", "Dead", "Empty")


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition's leader knows of a producer.

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
    """What tells a partition how a producer's open transaction has ended (KIP-98).

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
        ambient: Waits between retries; nonces.
    """

    def __init__(self, servers: str, settings: Mapping[str, str], timeout: float, ambient: Ambient) -> None:
        self._requests = Requests(servers, settings, timeout, ambient)

    def end(self, transaction_id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        """Sends EndTxn; gives Kafka's error code, 0 also if it had been ended so before."""
        body = Writer().string(transaction_id).pack("qh?", producer_id, epoch, commit).done()

        def attempt(reply: Reader) -> int:
            _, error = reply.unpack("ih")
            return settled(error)

        return self._requests.at_coordinator(transaction_id, Request(_END_TXN, 1, body), attempt)

    def describe(self, transaction_id: str) -> TransactionState | None:
        """The coordinator's state of an id; None if it knows none (never used, or expired after its end)."""
        body = Writer(flexible=True).length(1).string(transaction_id).tags().done()

        def attempt(reply: Reader) -> TransactionState | None:
            reply.unpack("i")
            reply.length()
            error = settled(reply.number("h"))
            if error == TRANSACTIONAL_ID_NOT_FOUND:
                return None
            require_ok(error)
            reply.string()
            state = reply.string()
            _, since_ms, producer_id, epoch = reply.unpack("iqqh")
            return TransactionState(state, producer_id, epoch, since_ms)

        return self._requests.at_coordinator(
            transaction_id, Request(_DESCRIBE_TRANSACTIONS, 0, body, flexible=True), attempt
        )

    def fence(self, transaction_id: str) -> None:
        """Aborts what is open and raises the epoch.

        A writer that still lives can add nothing more (KIP-98).
        """
        body = Writer().string(transaction_id).pack("i", _FENCING_TIMEOUT_MS).done()

        def attempt(reply: Reader) -> None:
            _, error = reply.unpack("ih")
            require_ok(settled(error))

        self._requests.at_coordinator(transaction_id, Request(_INIT_PRODUCER_ID, 1, body), attempt)

    def list_open(self, brokers: Sequence[Address], prefix: str) -> list[str]:
        """Ids with that prefix whose transactions are open, from all brokers, since each coordinates some."""
        found: set[str] = set()
        body = Writer(flexible=True).length(1).string("Ongoing").length(0).tags().done()

        for broker in brokers:
            listing = self._requests.at(broker, Request(_LIST_TRANSACTIONS, 0, body, flexible=True), _listing)
            found.update(listed.transaction_id for listed in listing if listed.transaction_id.startswith(prefix))
        return sorted(found)

    def list_of(self, brokers: Sequence[Address], producer_ids: Collection[int]) -> dict[int, tuple[str, str]]:
        """Transactional id and state of producers, by producer id, as far as coordinators know of them."""
        found: dict[int, tuple[str, str]] = {}
        body = Writer(flexible=True).length(0).length(len(producer_ids))
        body.pack(f"{len(producer_ids)}q", *producer_ids).tags()
        for broker in brokers:
            for listed in self._requests.at(
                broker, Request(_LIST_TRANSACTIONS, 0, body.done(), flexible=True), _listing
            ):
                found[listed.producer_id] = listed.transaction_id, listed.state
        return found

    def write_marker(self, leader: Address, topic: str, marker: Marker) -> None:
        """Ends a transaction in one partition, whatever its coordinator thinks (KIP-664).

        REQUIRES: the coordinator has ended it the same way.

        Raises:
            InvalidRequest: ``log-not-authorized``: it takes the right to ALTER the cluster.
        """
        body = Writer(flexible=True).length(1).pack("qh?", marker.producer_id, marker.producer_epoch, marker.commit)
        body.length(1).string(topic).length(1).pack("i", marker.partition).tags()
        body.pack("i", marker.coordinator_epoch).tags().tags()

        def attempt(reply: Reader) -> None:
            reply.length()
            reply.unpack("q")
            reply.length()
            reply.string()
            reply.length()
            _, error = reply.unpack("ih")
            require_ok(settled(error))

        self._requests.at(leader, Request(_WRITE_TXN_MARKERS, 1, body.done(), flexible=True), attempt)

    def producers(self, leaders: Mapping[Address, Sequence[int]], topic: str) -> dict[int, dict[int, ProducerState]]:
        """What each partition has stored, by partition and producer id.

        Args:
            leaders: Partitions by the broker that leads them.
            topic: Their topic.
        """
        found: dict[int, dict[int, ProducerState]] = {}
        for leader, partitions in leaders.items():
            body = Writer(flexible=True).length(1).string(topic).length(len(partitions))
            body.pack(f"{len(partitions)}i", *partitions).tags().tags()

            def attempt(reply: Reader) -> dict[int, dict[int, ProducerState]]:
                reply.unpack("i")
                reply.length()
                reply.string()
                return dict(_partition_producers(reply) for _ in range(reply.length()))

            found |= self._requests.at(leader, Request(_DESCRIBE_PRODUCERS, 0, body.done(), flexible=True), attempt)
        return found

    def producer_of(self, leader: Address, topic: str, partition: int, offset: int) -> tuple[int, int]:
        """Id and epoch of the producer that wrote a record: they stand at the head of its batch.

        Raises:
            Unavailable: ``log-delivery``: there is no such record.
        """
        body = Writer().pack("iiiib", -1, 0, 0, _HEAD_BYTES, _UNCOMMITTED).length(1).string(topic)
        body.length(1).pack("iqi", partition, offset, _HEAD_BYTES)

        def attempt(reply: Reader) -> tuple[int, int]:
            reply.unpack("ii")
            reply.string()
            _, _, error, _, _ = reply.unpack("iihqq")
            require_ok(settled(error))
            reply.unpack(f"{2 * max(reply.length(), 0)}q")
            if reply.length() < _HEAD_BYTES:
                raise Unavailable(
                    f"partition {partition} of topic {topic!r} has no record at offset {offset}", code="log-delivery"
                )
            # KIP-98: base offset, length, leader's epoch, magic, checksum, attributes, last delta, two timestamps
            return reply.unpack("qiibIhiqqqhii")[9:11]  # type: ignore[return-value]

        return self._requests.at(leader, Request(_FETCH, 4, body.done()), attempt)

    def close(self) -> None:
        """Closes the connections; a later call makes new ones."""
        self._requests.close()


class _Listed(NamedTuple):
    transaction_id: str
    producer_id: int
    state: str


def _listing(reply: Reader) -> list[_Listed]:
    _, error = reply.unpack("ih")
    require_ok(settled(error))
    for _ in range(reply.length()):
        reply.string()
    return [_listed(reply) for _ in range(reply.length())]


def _listed(reply: Reader) -> _Listed:
    found = _Listed(reply.string(), reply.number("q"), reply.string())
    reply.tags()
    return found


def _partition_producers(reply: Reader) -> tuple[int, dict[int, ProducerState]]:
    partition, error = reply.unpack("ih")
    reply.string()
    require_ok(settled(error))
    states: dict[int, ProducerState] = {}
    for _ in range(reply.length()):
        producer_id, epoch, last_sequence, _, coordinator_epoch, first_offset = reply.unpack("qiiqiq")
        reply.tags()
        states[producer_id] = ProducerState(epoch, last_sequence + 1, first_offset, coordinator_epoch)
    reply.tags()
    return partition, states

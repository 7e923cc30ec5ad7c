"""Kafka's transactions from outside their producer (PROTOCOL.md section 7.3; KIP-98, KIP-664).

librdkafka can end a transaction only through the producer that began it. But EndTxn is an ordinary request:
whoever knows the transactional id, the producer id and the epoch may send it. That is how any process ends
what a snapshot names after the writer has died. KIP-939 (two-phase commit) would be the official way and has
no usable client in any release.

The versions below are old ones that Kafka 3.0 and later speak; tested with 4.3.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, Unavailable
from log.kafka.connection import Connection, Reader, Writer, parse_servers

__all__ = ["Address", "ProducerState", "TransactionClient", "TransactionState"]

logger = logging.getLogger(__name__)

Address = tuple[str, int]
T = TypeVar("T")

_FETCH = 1
_FIND_COORDINATOR = 10
_INIT_PRODUCER_ID = 22
_END_TXN = 26
_DESCRIBE_PRODUCERS = 61
_DESCRIBE_TRANSACTIONS = 65
_LIST_TRANSACTIONS = 66

OK = 0
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
_NOT_AUTHORIZED = {29: "topic", 31: "cluster", 53: "transactional id"}
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS,
# LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR is not among them
_TRANSIENT = frozenset({14, 15, 16, 51, 5, 6, 7})

_UNCOMMITTED = 0
_HEAD_BYTES = 61
_FENCING_TIMEOUT_MS = 60_000
RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What the coordinator knows of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int

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
    """

    producer_epoch: int
    records: int
    first_offset: int


class _TransientError(Exception):
    """Worth another try: the answer may be different soon."""


class TransactionClient:
    """Asks transaction coordinators and partition leaders. One thread at a time.

    Args:
        servers: ``bootstrap.servers``.
        settings: librdkafka's security settings.
        timeout: For each answer, seconds.
        ambient: Waits between retries; nonces.
    """

    def __init__(self, servers: str, settings: Mapping[str, str], timeout: float, ambient: Ambient) -> None:
        self._servers = parse_servers(servers)
        self._settings = settings
        self._timeout = timeout
        self._ambient = ambient
        self._connections: dict[Address, Connection] = {}

    def end(self, transaction_id: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        """Sends EndTxn; gives Kafka's error code, 0 also if it had been ended so before."""
        body = Writer().string(transaction_id).pack("qh?", producer_id, epoch, commit).done()

        def attempt(reply: Reader) -> int:
            _, error = reply.unpack("ih")
            return _settled(error)

        return self._at_coordinator(transaction_id, _END_TXN, 1, body, attempt)

    def describe(self, transaction_id: str) -> TransactionState | None:
        """The coordinator's state of an id; None if it knows none (never used, or expired after its end)."""
        body = Writer(flexible=True).length(1).string(transaction_id).tags().done()

        def attempt(reply: Reader) -> TransactionState | None:
            reply.unpack("i")
            reply.length()
            error = _settled(reply.number("h"))
            if error == TRANSACTIONAL_ID_NOT_FOUND:
                return None
            _require_ok(error)
            reply.string()
            state = reply.string()
            _, _, producer_id, epoch = reply.unpack("iqqh")
            return TransactionState(state, producer_id, epoch)

        return self._at_coordinator(transaction_id, _DESCRIBE_TRANSACTIONS, 0, body, attempt, flexible=True)

    def fence(self, transaction_id: str) -> None:
        """Aborts what is open and raises the epoch.

        A writer that still lives can add nothing more (KIP-98).
        """
        body = Writer().string(transaction_id).pack("i", _FENCING_TIMEOUT_MS).done()

        def attempt(reply: Reader) -> None:
            _, error = reply.unpack("ih")
            _require_ok(_settled(error))

        self._at_coordinator(transaction_id, _INIT_PRODUCER_ID, 1, body, attempt)

    def list_open(self, brokers: Sequence[Address], prefix: str) -> list[str]:
        """Ids with that prefix whose transactions are open, from all brokers, since each coordinates some."""
        found: set[str] = set()
        body = Writer(flexible=True).length(1).string("Ongoing").length(0).tags().done()

        def attempt(reply: Reader) -> list[str]:
            _, error = reply.unpack("ih")
            _require_ok(_settled(error))
            for _ in range(reply.length()):
                reply.string()
            return [_listed(reply) for _ in range(reply.length())]

        for broker in brokers:
            ids = self._at(broker, _LIST_TRANSACTIONS, 0, body, attempt, flexible=True)
            found.update(i for i in ids if i.startswith(prefix))
        return sorted(found)

    def producers(
        self, leaders: Mapping[Address, Sequence[int]], topic: str, producer_id: int
    ) -> dict[int, ProducerState]:
        """What each partition has stored of a producer; partitions without anything are left out.

        Args:
            leaders: Partitions by the broker that leads them.
            topic: Their topic.
            producer_id: Whose state is asked for.
        """
        found: dict[int, ProducerState] = {}
        for leader, partitions in leaders.items():
            body = Writer(flexible=True).length(1).string(topic).length(len(partitions))
            body.pack(f"{len(partitions)}i", *partitions).tags().tags()

            def attempt(reply: Reader) -> dict[int, dict[int, ProducerState]]:
                reply.unpack("i")
                reply.length()
                reply.string()
                return dict(_partition_producers(reply) for _ in range(reply.length()))

            answer = self._at(leader, _DESCRIBE_PRODUCERS, 0, body.done(), attempt, flexible=True)
            found |= {p: states[producer_id] for p, states in answer.items() if producer_id in states}
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
            _require_ok(_settled(error))
            reply.unpack(f"{2 * max(reply.length(), 0)}q")
            if reply.length() < _HEAD_BYTES:
                raise Unavailable(
                    f"partition {partition} of topic {topic!r} has no record at offset {offset}", code="log-delivery"
                )
            # KIP-98: base offset, length, leader's epoch, magic, checksum, attributes, last delta, two timestamps
            return reply.unpack("qiibIhiqqqhii")[9:11]  # type: ignore[return-value]

        return self._at(leader, _FETCH, 4, body.done(), attempt, flexible=False)

    def close(self) -> None:
        """Closes the connections; a later call makes new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _at_coordinator(
        self,
        transaction_id: str,
        key: int,
        version: int,
        body: bytes,
        parse: Callable[[Reader], T],
        *,
        flexible: bool = False,
    ) -> T:
        def attempt() -> T:
            # Looked up each time: a coordinator moves when its broker dies.
            coordinator = self._coordinator(transaction_id)
            return self._once(coordinator, key, version, body, parse, flexible=flexible)

        return self._retried(attempt)

    def _at(
        self,
        broker: Address,
        key: int,
        version: int,
        body: bytes,
        parse: Callable[[Reader], T],
        *,
        flexible: bool,
    ) -> T:
        return self._retried(lambda: self._once(broker, key, version, body, parse, flexible=flexible))

    def _coordinator(self, transaction_id: str) -> Address:
        body = Writer().string(transaction_id).pack("b", 1).done()

        def parse(reply: Reader) -> Address:
            _, error = reply.unpack("ih")
            reply.string()
            _require_ok(_settled(error))
            reply.unpack("i")
            return reply.string(), reply.number("i")

        problem: OSError | None = None
        for server in self._servers:
            try:
                return self._once(server, _FIND_COORDINATOR, 2, body, parse)
            except OSError as error:
                problem = error
        assert problem is not None
        raise problem

    def _once(
        self,
        broker: Address,
        key: int,
        version: int,
        body: bytes,
        parse: Callable[[Reader], T],
        *,
        flexible: bool = False,
    ) -> T:
        with self._connection(broker) as connection:
            return parse(connection.request(key, version, body, flexible=flexible))

    @contextmanager
    def _connection(self, broker: Address) -> Iterator[Connection]:
        if broker not in self._connections:
            self._connections[broker] = Connection(broker, self._settings, self._timeout, self._ambient)
        try:
            yield self._connections[broker]
        except OSError:
            self._connections.pop(broker).close()
            raise

    def _retried(self, attempt: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception_type((_TransientError, OSError)),
            wait=wait_exponential(multiplier=0.02, max=1.0),
            stop=stop_after_delay(min(RETRY_SECONDS, 3 * self._timeout)),
            sleep=self._ambient.sleep,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except (_TransientError, OSError) as error:
            servers = ",".join(f"{host}:{port}" for host, port in self._servers)
            raise Unavailable(
                f"Kafka at {servers} did not answer a request about a transaction ({error}): retry later",
                code="log-unavailable",
            ) from error


def _settled(error: int) -> int:
    """The error code, unless it is worth another try or a matter of rights."""
    if error in _TRANSIENT:
        raise _TransientError(f"error {error}")
    if error in _NOT_AUTHORIZED:
        raise InvalidRequest(
            f"Kafka does not allow this user to use the {_NOT_AUTHORIZED[error]}: check the broker's ACLs",
            code="log-not-authorized",
        )
    return error


def _require_ok(error: int) -> None:
    if error != OK:
        raise Unavailable(f"Kafka answered a request about a transaction with error {error}", code="log-unavailable")


def _listed(reply: Reader) -> str:
    transaction_id = reply.string()
    reply.unpack("q")
    reply.string()
    reply.tags()
    return transaction_id


def _partition_producers(reply: Reader) -> tuple[int, dict[int, ProducerState]]:
    partition, error = reply.unpack("ih")
    reply.string()
    _require_ok(_settled(error))
    states: dict[int, ProducerState] = {}
    for _ in range(reply.length()):
        producer_id, epoch, last_sequence, _, _, first_offset = reply.unpack("qiiqiq")
        reply.tags()
        states[producer_id] = ProducerState(epoch, last_sequence + 1, first_offset)
    reply.tags()
    return partition, states

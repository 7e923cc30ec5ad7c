"""Implements a table's log as a topic: creates and reads it, and ends transactions (PROTOCOL.md sections 2 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from filestore.model.log_range import LogTransaction
from log.kafka.hanging import missing_markers, open_producers
from log.kafka.security import check_security
from log.kafka.transactions import FENCED_STATES, OK, ProducerState, TransactionClient, TransactionState
from log.table.config import LogConfig
from log.table.on_kafka.reader import RangeReader
from log.table.on_kafka.settings import client_settings, timeout_seconds
from log.table.on_kafka.tail import KafkaTail
from log.table.on_kafka.topic import Topic
from log.table.on_kafka.writer import KafkaLogWriter, PlainWriter, TransactionWriter
from log.table.open_transaction import OpenTransaction
from log.table.rows import row_schema
from log.table.store import EndReport, LogBatch, LogControl, LogStore
from log.table.transaction_ids import parse_transaction_id

__all__ = ["KafkaLog"]


_COORDINATOR_SECONDS = 5.0


class KafkaLog(LogStore):
    """A log in a topic. No connection is made before its first use.

    Args:
        config: Its topic and brokers.
        ambient: Clock, and the waits between retries.
    """

    def __init__(self, config: LogConfig, ambient: Ambient) -> None:
        self._config = config
        self._ambient = ambient
        self._topic = Topic(config, ambient)
        self._reader = RangeReader(config, ambient, self._topic.tombstone_retention_ms)
        self._transactions = TransactionClient(
            config.bootstrap_servers or "", client_settings(config), timeout_seconds(config), ambient
        )

    def create(self) -> None:
        """Checks security and the broker's limit, then makes the topic or finds it as it must be."""
        check_security(client_settings(self._config))
        self._topic.create()

    def create_anew(self) -> None:
        """Does what `create` does, which takes a topic that is there."""
        self.create()

    def drop(self) -> None:
        """Deletes the topic, if there is one."""
        self._topic.drop()

    def exists(self) -> bool:
        """Checks security, and asks whether the brokers have the topic."""
        check_security(client_settings(self._config))  # librdkafka would try until it times out
        return self._topic.exists()

    def check_adoptable(self) -> None:
        """Checks security, and asks for the topic's partitions, settings and offsets."""
        check_security(client_settings(self._config))
        self._topic.check_adoptable()

    def check_writable(self) -> None:
        """Checks security, the broker's limit, that the topic is there, and the right to write it."""
        check_security(client_settings(self._config))
        self._topic.check_writable()

    def identity(self) -> dict[str, str]:
        """Kafka's own ids: a topic that is dropped and made again has another."""
        topic_id, cluster_id = self._topic.identity()
        return {"system": "kafka", "topic": self._topic.name, "topic_id": topic_id, "cluster_id": cluster_id}

    def begin(self, transaction_id: str) -> KafkaLogWriter:
        """Opens a transaction; it connects to the broker with its first rows."""
        parse_transaction_id(transaction_id)
        writer = TransactionWriter if self._config.transactions else PlainWriter
        return writer(transaction_id, self._config, self._ambient, self)

    def end(self, transactions: Iterable[LogTransaction], *, commit: bool, late: bool = False) -> EndReport:
        """Sends EndTxn for each; one that was written without a transaction of Kafka's needs no ending."""
        ended: list[str] = []
        lost: list[str] = []
        transactions = [*transactions]
        trimmed = self._trimmed(transactions) if late and commit else set()
        for transaction in transactions:
            if transaction.id in trimmed and self._open(transaction):
                # The broker would commit it all the same, and nobody would notice the records that retention deleted.
                self._end(transaction, commit=False)
            done = transaction.producer_id < 0 or not transaction.ranges or self._end(transaction, commit)
            (ended if done else lost).append(transaction.id)
        return EndReport(tuple(ended), tuple(lost))

    def abort_unnamed(self, dead_among: Callable[[Sequence[str]], Collection[str]]) -> list[str]:
        """Fences writers that are dead.

        Their transactions are aborted, and if one lives after all it can add nothing more.
        """
        if not self._config.transactions:
            return []
        aborted: list[str] = []

        def complete() -> bool:
            found = self._transactions.list_open(self._topic.brokers(), f"{self._config.table_id}/")
            dead = sorted(dead_among(found)) if found else []
            for transaction_id in dead:
                self._transactions.fence(transaction_id)
            aborted.extend(i for i in dead if i not in aborted)
            return len(found) > len(dead) or self._topic.stable_offsets() == self._topic.end_offsets()

        # A coordinator that has just started knows nothing yet and does not say so; the partitions know at once
        # that something is open.
        Retrying(
            retry=retry_if_result(lambda done: not done),
            wait=wait_exponential(multiplier=0.01, max=0.2),
            stop=stop_after_delay(_COORDINATOR_SECONDS),
            sleep=self._ambient.sleep,
            retry_error_callback=lambda _: None,
        )(complete)
        return aborted

    def aborted(self, transactions: Sequence[LogTransaction]) -> list[str]:
        """Asks the coordinators, and for what they have forgotten a consumer with read_committed."""
        in_kafka = [t for t in transactions if t.producer_id >= 0 and t.ranges]
        trimmed = self._trimmed(in_kafka)
        return [t.id for t in in_kafka if t.id not in trimmed and self._was_aborted(t)]

    def _was_aborted(self, transaction: LogTransaction) -> bool:
        state = self._transactions.describe(transaction.id)
        if state is not None and state.producer_id == transaction.producer_id and state.state not in FENCED_STATES:
            return state.aborted
        return not self._reader.shows(transaction)

    def damages(self, covered: Mapping[int, int]) -> list[str]:
        """Returns nothing: each record batch has a checksum, which brokers and clients compare."""
        return []

    def end_hanging(self) -> list[str]:
        """Writes the markers that partitions wait for and nobody else will write."""
        if not self._config.transactions:
            return []
        stable, ends = self._topic.stable_offsets(), self._topic.end_offsets()
        waiting = [bucket for bucket, end in ends.items() if stable[bucket] < end]
        if not waiting:
            return []
        before = self._producers(waiting)
        opened = {producer_id for _, producer_id, _ in open_producers(before)}
        known = self._transactions.list_of(self._topic.brokers(), opened) if opened else {}
        ended = []
        for transaction_id, marker in missing_markers(
            before, known, self._producers(waiting), f"{self._config.table_id}/"
        ):
            (leader,) = self._topic.leaders([marker.partition])
            self._transactions.write_marker(leader, self._topic.name, marker)
            ended.append(transaction_id)
        return sorted(set(ended))

    def open_transactions(self) -> list[OpenTransaction]:
        """Asks partitions with open transactions for their producers, and coordinators for the producers' ids.

        A transactional id that we have no right to describe is as one that nobody knows.
        """
        stable, ends = self._topic.stable_offsets(), self._topic.end_offsets()
        waiting = [bucket for bucket, end in ends.items() if stable[bucket] < end]
        opened = sorted(open_producers(self._producers(waiting))) if waiting else []
        known = self._transactions.list_of(self._topic.brokers(), {p for _, p, _ in opened}) if opened else {}
        began = {producer_id: self._since_ms(id_, producer_id) for producer_id, (id_, _) in known.items()}
        return [OpenTransaction(b, at, known.get(p, (None, ""))[0], p, began.get(p)) for b, p, at in opened]

    def _since_ms(self, transaction_id: str, producer_id: int) -> int | None:
        state = self._transactions.describe(transaction_id)
        return (
            state.since_ms if state is not None and state.producer_id == producer_id and state.since_ms >= 0 else None
        )

    def events(
        self,
        transactions: Sequence[LogTransaction],
        *,
        bucket: int | None = None,
        columns: Sequence[str] | None = None,
        committed_ms: int | None = None,
    ) -> Iterator[LogBatch | LogControl]:
        """Reads the ranges with read_uncommitted: the caller's snapshots say what is committed."""
        schema = row_schema(self._config.schema, self._config.primary_key, columns)
        return self._reader.read(transactions, bucket, schema, committed_ms)

    def tail(self, offsets: Mapping[int, int], columns: Sequence[str] | None = None) -> KafkaTail:
        """Opens a consumer of its own, with read_uncommitted."""
        schema = row_schema(self._config.schema, self._config.primary_key, columns)
        return KafkaTail(self._config, offsets, schema, self._ambient)

    def start_offsets(self) -> dict[int, int]:
        """Returns Kafka's log start offsets."""
        return self._topic.start_offsets()

    def end_offsets(self) -> dict[int, int]:
        """Returns Kafka's high watermarks, which count markers and open transactions too."""
        return self._topic.end_offsets()

    def stable_offsets(self) -> dict[int, int]:
        """Returns Kafka's last stable offsets."""
        return self._topic.stable_offsets()

    def committed_behind(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Reads with read_committed, up to the last stable offsets of now."""
        if not self._config.transactions:
            return {}
        kept = self.start_offsets()
        starts = {b: max(offset, kept[b]) for b, offset in offsets.items()}
        return self._reader.committed_between(starts, self.stable_offsets())

    def trim(self, before: Mapping[int, int]) -> None:
        """Sends Kafka's DeleteRecords."""
        self._topic.trim(before)

    def keep_for(self, milliseconds: int | None) -> None:
        """Sets the topic's ``retention.ms``."""
        self._topic.keep_for(milliseconds)

    def close(self) -> None:
        """Closes consumers and connections."""
        with ExitStack() as closing:  # an error of one leaves none of the others open
            for one in (self._topic, self._transactions, self._reader):
                closing.callback(one.close)

    # What a writer asks (`log.table.on_kafka.writer.TransactionDesk`).

    def describe(self, transaction_id: str) -> TransactionState | None:
        """Returns what the coordinator knows of a transaction."""
        return self._transactions.describe(transaction_id)

    def require_writable(self) -> None:
        """Checks that it can be written: `NotFound` (``log-not-found``), `InvalidRequest` (``log-not-authorized``)."""
        self._topic.require_writable()

    def stored(self, buckets: Sequence[int], producer_id: int) -> dict[int, ProducerState]:
        """Returns what the partitions' leaders know of a producer."""
        found = self._producers(buckets)
        return {bucket: states[producer_id] for bucket, states in found.items() if producer_id in states}

    def _producers(self, buckets: Sequence[int]) -> dict[int, dict[int, ProducerState]]:
        return self._transactions.producers(self._topic.leaders(buckets), self._topic.name)

    def producer_of(self, bucket: int, offset: int) -> tuple[int, int]:
        """Returns which producer wrote a record, from the head of its batch."""
        (leader,) = self._topic.leaders([bucket])
        return self._transactions.producer_of(leader, self._topic.name, bucket, offset)

    def abort(self, transaction: LogTransaction) -> None:
        """Aborts a prepared transaction."""
        self.end([transaction], commit=False)

    def _trimmed(self, transactions: Sequence[LogTransaction]) -> set[str]:
        """Returns the ids of transactions of which retention has deleted records."""
        if all(transaction.producer_id < 0 for transaction in transactions):
            return set()
        starts = self._topic.start_offsets()
        return {t.id for t in transactions for part in t.ranges if part.start < starts[part.bucket]}

    def _open(self, transaction: LogTransaction) -> bool:
        state = self._transactions.describe(transaction.id)
        return state is not None and state.state == "Ongoing" and state.producer_id == transaction.producer_id

    def _end(self, transaction: LogTransaction, commit: bool) -> bool:
        """Ends a transaction; returns whether it has ended as asked, now or before."""
        error = self._transactions.end(
            transaction.id, transaction.producer_id, transaction.producer_epoch, commit=commit
        )
        if error == OK:
            return True
        # It was ended before, by somebody else, or the coordinator has forgotten it since.
        state = self._transactions.describe(transaction.id)
        if state is not None and state.producer_id == transaction.producer_id:
            return state.committed if commit else state.aborted
        return self._reader.shows(transaction) is commit

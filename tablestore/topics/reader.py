"""An endless reader of a Kafka table: its rows as they come, or what they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.ambient import Ambient
from log.connectors.declaration import KafkaDeclaration
from log.connectors.decoding import RowDecoder
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.progress import Positions
from tablestore.topics.changes import followed_changes, temporary_state
from tablestore.topics.offsets import named, offsets_of
from tablestore.topics.spec import spec_of

if TYPE_CHECKING:
    from log.kafka.declared_topic import DeclaredTopic

__all__ = ["Stop", "TopicReader", "ending_of", "starts_of"]

Stop = threading.Event | Callable[[], bool] | None


def ending_of(stop: Stop) -> Callable[[], bool] | None:
    """What says when a reader is to end; None: never."""
    return stop.is_set if isinstance(stop, threading.Event) else stop


def starts_of(table: KafkaDeclaration, topic: DeclaredTopic, known: dict[int, int]) -> dict[int, int]:
    """Where a reader goes on: where it was, and at the beginning of partitions that came since; at first as it says."""
    partitions = topic.partitions()
    if not known:
        return {r.partition: r.start for r in topic.ranges(partitions, table.startup)}
    return topic.first_offsets(p for p in partitions if p not in known) | known


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads a topic on and on.

    Attributes:
        table: What its messages are, with the reader's own options.
        topic: The same.
        stop: Says when to end; what the topic holds then is still given.
        ambient: The clock.
    """

    table: KafkaDeclaration
    topic: DeclaredTopic
    stop: Callable[[], bool] | None
    ambient: Ambient

    def changes(
        self, columns: Sequence[str] | None, state: str | None, consumer: str | None, *, complete: bool
    ) -> Iterator[pa.RecordBatch]:
        """What `tablestore.KafkaTable.follow` gives.

        Args:
            columns: Which; all if None.
            state: Where the rows are known from, if changes have to be completed.
            consumer: Whose place it is, if not.
            complete: Whether messages are taken as they are.
        """
        if not complete:
            return self.complete_changes(columns, state)
        return self.rows(columns) if consumer is None else self.remembered_rows(columns, consumer)

    def rows(self, columns: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of messages, as they are."""
        from log.kafka.declared_reader import follow_topic  # librdkafka takes 80 ms to load

        for rows in follow_topic(self.table, self.topic, self.stop, self.ambient, columns):
            yield from rows.to_batches()

    def remembered_rows(self, columns: Collection[str] | None, consumer: str) -> Iterator[pa.RecordBatch]:
        """The same from where the consumer was; rows count as taken once the next are asked for."""
        from log.kafka.declared_reader import follow_from
        from log.kafka.group_offsets import GroupOffsets

        group = GroupOffsets(self.table, consumer, self.ambient)
        starts = starts_of(self.table, self.topic, group.read())
        decoder = RowDecoder.of(self.table, columns)
        for found in follow_from(self.table, self.topic, starts, self.stop, self.ambient, decoder):
            if found.rows is not None:
                yield from found.rows.to_batches()
                group.write(found.positions)

    def complete_changes(self, columns: Sequence[str] | None, state: str | None) -> Iterator[pa.RecordBatch]:
        """What messages change; for the state see `tablestore.KafkaTable.follow`."""
        with self._state(state) as folder:
            spec = spec_of(self.table, folder, columns)
            with Normalizer(spec, self.ambient) as normalizer:
                yield from followed_changes(normalizer, self._batches(normalizer))

    @staticmethod
    @contextmanager
    def _state(state: str | None) -> Iterator[str]:
        if state is not None:
            yield state
            return
        with temporary_state() as folder:
            yield folder

    def _batches(self, normalizer: Normalizer) -> Iterator[tuple[pa.Table, Positions]]:
        from log.kafka.declared_reader import follow_from  # librdkafka takes 80 ms to load

        topic_id, _ = self.topic.identified()
        known = offsets_of(topic_id, normalizer.positions, f"the state at {normalizer.spec.state}")
        starts = starts_of(self.table, self.topic, known)
        decoder = RowDecoder.of(self.table, normalizer.spec.definition.schema.names)
        for found in follow_from(self.table, self.topic, starts, self.stop, self.ambient, decoder):
            if found.rows is not None:
                yield found.rows, named(topic_id, found.positions)

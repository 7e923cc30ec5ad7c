"""An endless reader of a Kafka table: its rows as they come, or what they change.

Where a reader begins is decided, and kept if it has a place of its own, when it is asked for and not with its first
batch. Otherwise "the latest offset" would be another one after each restart, until the first batch was taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tablestore.topics.place import ReaderPlace, place_gone
from tablestore.topics.spec import spec_of

if TYPE_CHECKING:
    from log.kafka.declared_reader import Followed
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
        columns: Which are read; all if None.
    """

    table: KafkaDeclaration
    topic: DeclaredTopic
    stop: Callable[[], bool] | None
    ambient: Ambient
    columns: Sequence[str] | None

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of messages, as they are."""
        return self._rows(starts_of(self.table, self.topic, {}))

    def _rows(self, starts: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        for found in self._followed(starts, self.columns):
            if found.rows is not None:
                yield from found.rows.to_batches()

    def remembered_rows(self, consumer: str, most: int | None) -> Iterator[pa.RecordBatch]:
        """The same from where the consumer was; rows count as taken once the next are asked for.

        Args:
            consumer: The consumer's id.
            most: The most messages that are taken at once, since the place cannot lie within what was taken at once.
        """
        from log.kafka.group_offsets import GroupOffsets  # librdkafka takes 80 ms to load

        self.topic.partitions()  # says why there is no connection, which the group's consumer does not
        group = GroupOffsets(self.table, consumer, self.ambient)
        known = group.read()
        place = ReaderPlace(group.write, known, self.ambient)
        starts = starts_of(self.table, self.topic, known)
        place.reached(starts)
        return self._rows_from(starts, place, consumer, most)

    def _rows_from(
        self, starts: Mapping[int, int], place: ReaderPlace, consumer: str, most: int | None
    ) -> Iterator[pa.RecordBatch]:
        with place_gone(consumer):
            for found in self._followed(starts, self.columns, most):
                if found.rows is not None:
                    yield from found.rows.combine_chunks().to_batches()
                place.reached(found.positions)

    def complete_changes(self, state: str | None) -> Iterator[pa.RecordBatch]:
        """What messages change; for the state see `tablestore.KafkaTable.follow`."""
        topic_id, _ = self.topic.identified()
        if state is None:
            return self._forgotten_changes(topic_id, starts_of(self.table, self.topic, {}))
        spec = spec_of(self.table, state, self.columns)
        normalizer = Normalizer(spec, self.ambient)
        known = offsets_of(topic_id, normalizer.positions, f"the state at {spec.state}")
        starts = starts_of(self.table, self.topic, known)
        if not known:
            nothing = RowDecoder.of(self.table, spec.definition.schema.names).schema.empty_table()
            normalizer.apply(nothing, named(topic_id, starts))
        return self._changes(normalizer, topic_id, starts)

    def _forgotten_changes(self, topic_id: str, starts: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        with temporary_state() as folder:
            normalizer = Normalizer(spec_of(self.table, folder, self.columns), self.ambient)
            yield from self._changes(normalizer, topic_id, starts)

    def _changes(self, normalizer: Normalizer, topic_id: str, starts: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        with normalizer:
            yield from followed_changes(normalizer, self._batches(normalizer, topic_id, starts))

    def _batches(
        self, normalizer: Normalizer, topic_id: str, starts: Mapping[int, int]
    ) -> Iterator[tuple[pa.Table, Positions]]:
        for found in self._followed(starts, normalizer.spec.definition.schema.names):
            if found.rows is not None:
                yield found.rows, named(topic_id, found.positions)

    def _followed(
        self, starts: Mapping[int, int], columns: Sequence[str] | None, most: int | None = None
    ) -> Iterator[Followed]:
        from log.kafka.declared_reader import follow_from  # librdkafka takes 80 ms to load

        decoder = RowDecoder.of(self.table, columns)
        return follow_from(self.table, self.topic, starts, self.stop, self.ambient, decoder, most)

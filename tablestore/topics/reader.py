"""An endless reader of a Kafka table: it returns the rows as they arrive, or their changes.

The position at which a reader begins is determined, and stored if the reader has one of its own, when the reader is
created and not with its first batch. Otherwise "the latest offset" would change with each restart before the first
batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.ambient import Ambient
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import RowDecoder
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.progress import Positions
from tablestore.topics.changes import followed_changes, temporary_state
from tablestore.topics.offsets import named, offsets_of
from tablestore.topics.place import ReaderPlace, place_gone
from tablestore.topics.spec import spec_of

if TYPE_CHECKING:
    from log.connector.reader import Followed
    from log.connector.topic import ConnectorTopic

__all__ = ["Stop", "TopicReader", "ending_of", "starts_of"]

Stop = threading.Event | Callable[[], bool] | None


def ending_of(stop: Stop) -> Callable[[], bool] | None:
    """Converts `stop` to a function that says when a reader ends; None: never."""
    return stop.is_set if isinstance(stop, threading.Event) else stop


def starts_of(table: KafkaDeclaration, topic: ConnectorTopic, known: dict[int, int]) -> dict[int, int]:
    """The offsets at which a reader continues: its own, and the first ones of new partitions; at first its options'."""
    partitions = topic.partitions()
    if not known:
        return {r.partition: r.start for r in topic.ranges(partitions, table.startup)}
    return topic.first_offsets(p for p in partitions if p not in known) | known


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Reads a topic without an end.

    Attributes:
        table: The declaration of the topic, with the reader's own options.
        topic: The same topic.
        stop: Says when to end; messages that the topic has then are still returned.
        ambient: The clock.
        columns: The columns to read; all if None.
    """

    table: KafkaDeclaration
    topic: ConnectorTopic
    stop: Callable[[], bool] | None
    ambient: Ambient
    columns: Sequence[str] | None

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows of messages unchanged."""
        return self._rows(starts_of(self.table, self.topic, {}))

    def _rows(self, starts: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        for found in self._followed(starts, self.columns):
            if found.rows is not None:
                yield from found.rows.to_batches()

    def remembered_rows(self, consumer: str, most: int | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows from the consumer's position on; rows count as read once the next ones are requested.

        Args:
            consumer: The consumer's id.
            most: The largest number of messages to read at once, since a position cannot be inside of a batch.
        """
        from log.connector.groups import group_offsets  # librdkafka takes 80 ms to load

        self.topic.partitions()  # its error says why there is no connection, unlike that of the group's consumer
        group = group_offsets(self.table, consumer, self.ambient)
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
        """Yields the changes of messages; for the state see `tablestore.KafkaTable.follow`."""
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
        from log.connector.reader import follow_from  # librdkafka takes 80 ms to load

        decoder = RowDecoder.of(self.table, columns)
        return follow_from(self.table, self.topic, starts, self.stop, self.ambient, decoder, most)

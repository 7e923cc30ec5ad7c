"""Reads a declared table's topic: ranges of offsets, or endlessly; what cannot be read goes where the table says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from filestore.ambient import Ambient
from filestore.errors import NotFound, Unavailable
from log.connectors.declaration import KafkaDeclaration
from log.connectors.decoding import Incoming, RowDecoder
from log.connectors.ranges import PartitionRange
from log.connectors.startup import Startup, StartupMode
from log.formats.format import Malformed
from log.formats.malformed import Policy, decide
from log.kafka.declared_settings import consumer_settings, timeout_seconds
from log.kafka.declared_topic import DeclaredTopic
from log.kafka.declared_writer import DeadLetters
from log.kafka.message_columns import NOTHING, Fetched, incoming
from log.kafka.reader import GONE, PASSING
from log.kafka.settings import translated

__all__ = ["Decoder", "Followed", "follow_from", "read_ranges"]

logger = logging.getLogger(__name__)

_ALL = Startup(StartupMode.EARLIEST)
_FIRST_MESSAGES = 500
_MOST_MESSAGES = 20_000
_MOST_BYTES = 32 << 20
_WAIT_SECONDS = 0.05


def read_ranges(
    table: KafkaDeclaration,
    ranges: Collection[PartitionRange],
    ambient: Ambient,
    columns: Collection[str] | None = None,
) -> Iterator[pa.Table]:
    """The rows of some ranges: bounded batches, each partition's messages in order.

    Args:
        table: Whose topic.
        ranges: At most one of each partition.
        ambient: The clock.
        columns: Which columns; all if None.

    Raises:
        Corrupt: ``malformed-record``.
        NotFound: ``offset-gone``: messages were removed meanwhile.
        Unavailable: ``log-unavailable``.
    """
    decoder = RowDecoder.of(table, columns)
    wanted = {r.partition: r for r in ranges if r.start < r.end}
    if not wanted:
        return
    with _Session(table, decoder, ambient) as session:
        session.assign({r.partition: r.start for r in wanted.values()})
        left = dict(wanted)
        while left:
            count = sum(r.end - max(r.start, session.positions[r.partition]) for r in left.values())
            yield from session.decoded(session.fetch(count).before({p: r.end for p, r in wanted.items()}))
            for done in [p for p, r in left.items() if session.positions[p] >= r.end]:
                del left[done]
                session.pause(done)


@dataclass(frozen=True, slots=True)
class Followed:
    """What a look at a topic gave.

    Attributes:
        rows: None if nothing has come, or nothing that has rows.
        positions: Of each partition the offset at which reading goes on behind them.
    """

    rows: pa.Table | None
    positions: Mapping[int, int]


class Decoder(Protocol):
    """What makes rows of messages: a `RowDecoder`, or what chooses one by the messages."""

    @property
    def wanted(self) -> Sequence[str]:
        """The metadata that it needs."""
        ...

    def decode(self, messages: Incoming) -> tuple[pa.Table, tuple[Malformed, ...]]:
        """As `RowDecoder.decode`."""
        ...


def follow_from(  # what a reader can choose are its arguments
    table: KafkaDeclaration,
    topic: DeclaredTopic,
    starts: Mapping[int, int],
    stop: Callable[[], bool] | None,
    ambient: Ambient,
    decoder: Decoder,
    most: int | None = None,
) -> Iterator[Followed]:
    """The rows of all messages from given offsets on, as they come, and how far reading is; until `stop` says so.

    What the topic held when `stop` first said so is still given. Partitions that come later are found, and read from
    their beginning. It gives something each time it has waited. Errors as of `read_ranges`.

    Args:
        table: Whose topic.
        topic: The same.
        starts: Where to begin in each partition.
        stop: When to end; the first look is made in any case.
        ambient: The clock.
        decoder: Makes the rows.
        most: The most messages that it takes at once; None: as memory allows.

    Raises:
        Unavailable: after `stop` said so, what the topic holds did not come for as long as a request may take.
    """
    look = _Discovery(topic, table.discovery, ambient)
    ends: dict[int, int] | None = None
    with _Session(table, decoder, ambient) as session:
        session.assign(starts)
        while ends is None or any(session.positions[p] < end for p, end in ends.items()):
            fetched = session.poll(most)
            if ends is not None:  # what is asked for is there: brokers that do not send it are gone
                session.require_answers()
            rows = next(session.decoded(fetched if ends is None else fetched.before(ends)), None)
            known = session.positions
            yield Followed(rows, dict(known) if ends is None else {p: min(at, ends[p]) for p, at in known.items()})
            if ends is None and stop is not None and stop():
                found = topic.ranges(topic.partitions(), _ALL)
                ends = {r.partition: r.end for r in found}
                session.add({r.partition: r.start for r in found})
            elif ends is None and (new := look.new_partitions(session.positions)):
                session.add(topic.first_offsets(new))


@dataclass(slots=True)
class _Discovery:
    topic: DeclaredTopic
    every: timedelta
    ambient: Ambient
    looked_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.looked_ms = self.ambient.now_ms()

    def new_partitions(self, known: Collection[int]) -> list[int]:
        """Those that came since, if it is time to look, and the brokers answer; otherwise the next look finds them."""
        now_ms = self.ambient.now_ms()
        if not self.every or now_ms - self.looked_ms < self.every // timedelta(milliseconds=1):
            return []
        self.looked_ms = now_ms
        try:
            return [p for p in self.topic.partitions() if p not in known]
        except Unavailable as error:
            logger.info("%s: new partitions are looked for later", error)
            return []


class _Session:
    """One consumer, where it is, and what becomes of its messages."""

    def __init__(self, table: KafkaDeclaration, decoder: Decoder, ambient: Ambient) -> None:
        self._table = table
        self._decoder = decoder
        self._ambient = ambient
        self._action = f"reading topic {table.topic}"
        self._most = _FIRST_MESSAGES
        self._problem: KafkaError | None = None
        self._silent_since_ms: int | None = None
        self._letters = DeadLetters(table) if table.policy is Policy.DEAD_LETTER else None
        self.positions: dict[int, int] = {}
        """The next offset of each partition; beyond what no reader is shown at its end."""
        with translated(self._action, table):
            self._consumer = Consumer(consumer_settings(table))

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()

    def assign(self, starts: Mapping[int, int]) -> None:
        """Reads on from these offsets, and from no other partition."""
        self.positions = dict(starts)
        with translated(self._action, self._table):
            self._consumer.assign([TopicPartition(self._table.topic, p, offset) for p, offset in starts.items()])

    def add(self, starts: Mapping[int, int]) -> None:
        """Reads these partitions, too, unless it does already."""
        if not starts.keys() <= self.positions.keys():
            self.assign({**starts, **self.positions})

    def pause(self, partition: int) -> None:
        """Reads no more of a partition."""
        self._consumer.pause([TopicPartition(self._table.topic, partition)])

    def fetch(self, most: int) -> Fetched:
        """Some messages, at most so many, or a partition's end seen.

        Raises:
            Unavailable: neither came for as long as a request may take.
        """
        until_ms = self._ambient.now_ms() + int(timeout_seconds(self._table) * 1000)
        while self._ambient.now_ms() < until_ms:
            with translated(self._action, self._table):
                found = self._consumer.consume(max(1, min(most, self._most)), _WAIT_SECONDS)
            before = dict(self.positions)
            fetched = self._seen(found)
            if fetched.messages or self.positions != before:
                return fetched
        raise self._silent()

    def poll(self, most: int | None = None) -> Fetched:
        """What has come, at most so many messages, after a short wait for the first one; none if nothing has."""
        more = self._most if most is None else min(self._most, most - 1)
        with translated(self._action, self._table):
            first = self._consumer.poll(_WAIT_SECONDS)
            if first is None:
                return NOTHING
            before = dict(self.positions)
            fetched = self._seen([first, *(self._consumer.consume(more, 0) if more else ())])
        if fetched.messages or self.positions != before:
            self._silent_since_ms = None
        return fetched

    def require_answers(self) -> None:
        """Of polls that something is there for. `Unavailable`: nothing came for as long as a request may take."""
        now_ms = self._ambient.now_ms()
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        elif now_ms - self._silent_since_ms > timeout_seconds(self._table) * 1000:
            raise self._silent()

    def _silent(self) -> Unavailable:
        return Unavailable(
            f"Kafka at {self._table.bootstrap_servers} sent nothing of topic {self._table.topic} ({self._problem}): is "
            "the broker running? Retry then",
            code="log-unavailable",
        )

    def decoded(self, fetched: Fetched) -> Iterator[pa.Table]:
        """Their rows, if they have any, after what cannot be read is dealt with."""
        if not fetched.messages:
            return
        found = incoming(fetched, self._decoder.wanted)
        rows, malformed = self._decoder.decode(found)
        letters = decide(self._table.policy, malformed, self._table.topic, found.partitions, found.offsets)
        if letters:
            assert self._letters is not None, "dead letters without a topic for them"
            self._letters.send(fetched.messages, letters)
        if rows.num_rows:
            yield rows

    def _seen(self, found: Sequence[Message]) -> Fetched:
        fetched = Fetched.of([m for m in found if m.error() is None])
        self.positions |= {partition: last + 1 for partition, last in fetched.last_offsets().items()}
        if len(fetched.messages) < len(found):
            for event in found:
                self._notice(event)
        if fetched.messages:
            sample = fetched.messages[:: len(fetched.messages) // 100 + 1]
            self._most = max(1, min(_MOST_MESSAGES, _MOST_BYTES * len(sample) // max(1, sum(map(len, sample)))))
        return fetched

    def _notice(self, event: Message) -> None:
        """An event: a partition's end, or an error; raises what waiting does not mend."""
        error = event.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            # Markers and what was aborted take offsets, too, and are never seen.
            partition, offset = event.partition(), event.offset()
            assert partition is not None and offset is not None
            self.positions[partition] = max(self.positions[partition], offset)
        elif error.code() in GONE:
            at = self.positions.get(event.partition() or 0)
            raise NotFound(
                f"topic {self._table.topic}, partition {event.partition()}: offset {at} is not there any more, or not "
                "yet (retention, or a topic that was made anew): begin again with the earliest offset",
                code="offset-gone",
            )
        elif error.code() not in PASSING:
            with translated(self._action, self._table):
                raise KafkaException(error)
        else:
            self._problem = error

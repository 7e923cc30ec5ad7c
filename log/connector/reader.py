"""Reads a table's topic: ranges of offsets, or endlessly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import NotFound, Unavailable
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import Incoming, RowDecoder
from log.connector.formats.format import Malformed
from log.connector.formats.malformed import Policy, decide
from log.connector.ranges import PartitionRange
from log.connector.settings import consumer_settings
from log.connector.startup import Startup, StartupMode
from log.connector.topic import ConnectorTopic
from log.connector.writer import DeadLetters
from log.kafka.fetching import Fetcher
from log.kafka.messages import Fetched

__all__ = ["Decoder", "Followed", "follow_from", "read_ranges"]

logger = logging.getLogger(__name__)

_ALL = Startup(StartupMode.EARLIEST)


def read_ranges(
    table: KafkaDeclaration,
    ranges: Collection[PartitionRange],
    ambient: Ambient,
    columns: Collection[str] | None = None,
) -> Iterator[pa.Table]:
    """Yields the rows of some ranges in bounded batches, each partition's messages in order.

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
        fetcher = session.fetcher
        fetcher.assign({r.partition: r.start for r in wanted.values()})
        left = dict(wanted)
        while left:
            count = sum(r.end - max(r.start, fetcher.positions[r.partition]) for r in left.values())
            yield from session.decoded(fetcher.fetch(count).before({p: r.end for p, r in wanted.items()}))
            for done in [p for p, r in left.items() if fetcher.positions[p] >= r.end]:
                del left[done]
                fetcher.pause(done)


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of one poll of a topic.

    Attributes:
        rows: None if nothing has arrived, or nothing that has rows.
        positions: Of each partition the offset at which reading goes on behind them.
    """

    rows: pa.Table | None
    positions: Mapping[int, int]


class Decoder(Protocol):
    """Decodes rows from messages: a `RowDecoder`, or what chooses one by the messages."""

    @property
    def wanted(self) -> Sequence[str]:
        """The metadata that it needs, by key."""
        ...

    def decode(self, messages: Incoming) -> tuple[pa.Table, tuple[Malformed, ...]]:
        """Decodes as `RowDecoder.decode`."""
        ...


def follow_from(  # what a reader can choose are its arguments
    table: KafkaDeclaration,
    topic: ConnectorTopic,
    starts: Mapping[int, int],
    stop: Callable[[], bool] | None,
    ambient: Ambient,
    decoder: Decoder,
    most: int | None = None,
) -> Iterator[Followed]:
    """Yields the rows of all messages from given offsets on, as they arrive, and the positions, until `stop` is true.

    What the topic held when `stop` first was true is still read. Partitions that are added later are found, and read
    from their beginning. It yields after each wait. Errors as of `read_ranges`.

    Args:
        table: Whose topic.
        topic: The same.
        starts: Where to begin in each partition.
        stop: When to end; the first look is made in any case.
        ambient: The clock.
        decoder: Makes the rows.
        most: The most messages of one batch; None: as memory allows.

    Raises:
        Unavailable: after `stop` was true, what the topic holds did not arrive for as long as a request may take.
    """
    look = _Discovery(topic, table.discovery, ambient)
    ends: dict[int, int] | None = None
    with _Session(table, decoder, ambient) as session:
        fetcher = session.fetcher
        fetcher.assign(starts)
        while ends is None or any(fetcher.positions[p] < end for p, end in ends.items()):
            fetched = fetcher.poll(most=most)
            if ends is not None:  # what is asked for is there: brokers that do not send it are gone
                fetcher.require_answers()
            rows = next(session.decoded(fetched if ends is None else fetched.before(ends)), None)
            known = fetcher.positions
            yield Followed(rows, dict(known) if ends is None else {p: min(at, ends[p]) for p, at in known.items()})
            if ends is None and stop is not None and stop():
                found = topic.ranges(topic.partitions(), _ALL)
                ends = {r.partition: r.end for r in found}
                fetcher.add({r.partition: r.start for r in found})
            elif ends is None and (new := look.new_partitions(known)):
                fetcher.add(topic.first_offsets(new))


@dataclass(slots=True)
class _Discovery:
    topic: ConnectorTopic
    every: timedelta
    ambient: Ambient
    looked_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.looked_ms = self.ambient.now_ms()

    def new_partitions(self, known: Collection[int]) -> list[int]:
        """Returns partitions that were added, if it is time to look and the brokers answer; else a later look does."""
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
    """Fetches and decodes a table's messages, and handles malformed ones as the table says."""

    def __init__(self, table: KafkaDeclaration, decoder: Decoder, ambient: Ambient) -> None:
        self._table = table
        self._decoder = decoder
        self._letters = DeadLetters(table, ambient) if table.policy is Policy.DEAD_LETTER else None
        self.fetcher = Fetcher(
            table.topic, table, consumer_settings(table), ambient, f"reading topic {table.topic}", self._gone
        )

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.fetcher.close()

    def decoded(self, fetched: Fetched) -> Iterator[pa.Table]:
        """Yields the messages' rows, if there are any; handles malformed messages as the table says."""
        if not fetched:
            return
        found = Incoming(
            fetched.keys(),
            fetched.values(),
            fetched.partitions.tolist(),
            fetched.offsets.tolist(),
            {name: fetched.metadata(name) for name in self._decoder.wanted},
        )
        rows, malformed = self._decoder.decode(found)
        letters = decide(self._table.policy, malformed, self._table.topic, found.partitions, found.offsets)
        if letters:
            assert self._letters is not None, "dead letters without a topic for them"
            self._letters.send(fetched, letters)
        if rows.num_rows:
            yield rows

    def _gone(self, partition: int, offset: int | None) -> NotFound:
        return NotFound(
            f"topic {self._table.topic}, partition {partition}: offset {offset} is not there any more, or not yet "
            "(retention, or a topic that was made anew): begin again with the earliest offset",
            code="offset-gone",
        )

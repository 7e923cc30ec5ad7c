"""The complete changes of a range of a topic's messages, for tasks, which run anywhere and may be retried."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import RowDecoder
from log.connector.ranges import PartitionRange
from tablestore.normalizing.parts import opened_part
from tablestore.normalizing.spec import NormalizerSpec
from tablestore.topics.offsets import named, offsets_of

__all__ = ["changes_of_range", "check_follows", "pieces_of"]

_PIECE = 50_000
_MOST_PIECES = 4  # a state knows its last five batches


def changes_of_range(
    table: KafkaDeclaration, spec: NormalizerSpec, topic_id: str, begin: int, part: PartitionRange, ambient: Ambient
) -> Iterator[pa.RecordBatch]:
    """Yields the changes of a range of one partition's messages, for a task: it may run anywhere, and repeatedly.

    The ranges of a partition follow each other; the last one that succeeded or failed can be requested again. Keys
    must stay in their partitions, so the topic must be partitioned by key, and keep its number of partitions.

    Args:
        table: The declaration of the topic.
        spec: The result of `spec_of`; each partition has a state of its own in its folder.
        topic_id: The topic's id.
        begin: The offset at which the reader began in this partition.
        part: The messages. It takes the memory of a quarter of the range, or of 50,000 messages.
        ambient: The clock.

    Raises:
        NotFound: ``topic-replaced``: the state belongs to another topic.
        InvalidRequest: ``state-gap``, as `check_follows`.
    """
    from log.connector.reader import read_ranges  # librdkafka takes 80 ms to load

    normalizer = opened_part(spec, str(part.partition))
    where = f"the state at {normalizer.spec.state}"
    check_follows(where, offsets_of(topic_id, normalizer.positions, where).get(part.partition), part, begin)
    names = spec.definition.schema.names
    nothing = RowDecoder.of(table, names).schema.empty_table()
    for piece in pieces_of(part):
        rows = pa.concat_tables([nothing, *read_ranges(table, [piece], ambient, names)])
        yield from normalizer.apply(rows, named(topic_id, {part.partition: piece.end}))


def check_follows(where: str, known: int | None, part: PartitionRange, begin: int) -> None:
    """Checks that a range follows a state, or is in it already: a state may be outdated, or another reader's. Pure.

    Args:
        where: The state, for errors.
        known: The offset up to which the state has the partition; None if it has nothing of it.
        part: The range.
        begin: The offset at which the reader began.

    Raises:
        InvalidRequest: ``state-gap``.
    """
    at = begin if known is None else known
    if at == part.start or (known is not None and (at >= part.end or at in {p.end for p in pieces_of(part)})):
        return
    raise InvalidRequest(
        f"{where} has partition {part.partition} up to offset {at}, but the batch goes from {part.start} to "
        f"{part.end}: is the folder on a disk that all workers have, and this reader's own? Start the query with a new "
        "checkpoint and another folder",
        code="state-gap",
    )


def pieces_of(part: PartitionRange) -> tuple[PartitionRange, ...]:
    """Divides a range, always in the same way, into so few pieces that a repeated request knows them all. Pure."""
    size = max(_PIECE, -(-(part.end - part.start) // _MOST_PIECES))
    starts = range(part.start, part.end, size)
    return tuple(PartitionRange(part.partition, at, min(at + size, part.end)) for at in starts)

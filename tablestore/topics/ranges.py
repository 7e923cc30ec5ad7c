"""Complete changes of a range of a topic's messages: for tasks, which run anywhere and may be tried again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from log.connectors.declaration import KafkaDeclaration
from log.connectors.decoding import RowDecoder
from log.connectors.ranges import PartitionRange
from tablestore.normalizing.parts import opened_part
from tablestore.normalizing.spec import NormalizerSpec
from tablestore.topics.offsets import named, offsets_of

__all__ = ["changes_of_range", "check_follows", "pieces_of"]

_PIECE = 50_000
_MOST_PIECES = 4  # a state knows its last five batches


def changes_of_range(
    table: KafkaDeclaration, spec: NormalizerSpec, topic_id: str, begin: int, part: PartitionRange, ambient: Ambient
) -> Iterator[pa.RecordBatch]:
    """What a range of one partition's messages changes, for a task: it may run anywhere, and again.

    The ranges of a partition follow each other; the one that was taken last, or failed, can be asked for again. Keys
    must stay in their partitions, so the topic must be partitioned by key, and keep its number of partitions.

    Args:
        table: What the messages are.
        spec: From `spec_of`; each partition has a state of its own below its folder.
        topic_id: The topic's.
        begin: The offset at which the reader set out in this partition.
        part: Which messages. Memory: a quarter of the range, or a piece of 50,000 messages.
        ambient: The clock.

    Raises:
        NotFound: ``topic-replaced``: the state is one of another topic.
        InvalidRequest: ``state-gap``, as `check_follows`.
    """
    from log.kafka.declared_reader import read_ranges  # librdkafka takes 80 ms to load

    normalizer = opened_part(spec, str(part.partition))
    where = f"the state at {normalizer.spec.state}"
    check_follows(where, offsets_of(topic_id, normalizer.positions, where).get(part.partition), part, begin)
    names = spec.definition.schema.names
    nothing = RowDecoder.of(table, names).schema.empty_table()
    for piece in pieces_of(part):
        rows = pa.concat_tables([nothing, *read_ranges(table, [piece], ambient, names)])
        yield from normalizer.apply(rows, named(topic_id, {part.partition: piece.end}))


def check_follows(where: str, known: int | None, part: PartitionRange, begin: int) -> None:
    """Sees that a state goes on with a range, or has taken it: it may be left behind, or another reader's. Pure.

    Args:
        where: Whose state, for errors.
        known: How far the state has taken the partition; None if it has nothing of it.
        part: The range.
        begin: The offset at which the reader set out.

    Raises:
        InvalidRequest: ``state-gap``.
    """
    at = begin if known is None else known
    if at == part.start or (known is not None and (at >= part.end or at in {p.end for p in pieces_of(part)})):
        return
    raise InvalidRequest(
        f"{where} has taken partition {part.partition} up to offset {at}, and the batch goes from {part.start} to "
        f"{part.end}: is the folder on a disk that all workers have, and this reader's own? Start the query with a new "
        "checkpoint and another folder",
        code="state-gap",
    )


def pieces_of(part: PartitionRange) -> tuple[PartitionRange, ...]:
    """A range in pieces, in the same way each time; so few that all are known when it is asked for again. Pure."""
    size = max(_PIECE, -(-(part.end - part.start) // _MOST_PIECES))
    starts = range(part.start, part.end, size)
    return tuple(PartitionRange(part.partition, at, min(at + size, part.end)) for at in starts)

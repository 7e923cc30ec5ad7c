"""Complete changes of a Kafka topic that tells upserts: batches of messages go through a normalizer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, NotFound
from filestore.storage import writing
from log.connectors.declaration import KafkaDeclaration
from log.connectors.decoding import RowDecoder
from log.connectors.ranges import PartitionRange
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.parts import opened_part
from tablestore.normalizing.progress import Positions
from tablestore.normalizing.spec import NormalizerSpec

__all__ = [
    "changes_of_range",
    "check_follows",
    "followed_changes",
    "is_complete",
    "named",
    "offsets_of",
    "pieces_of",
    "scanned_changes",
    "spec_of",
    "state_unused",
    "temporary_state",
]

_PIECE = 50_000
_MOST_PIECES = 4  # a state knows its last five batches


def is_complete(table: KafkaDeclaration) -> bool:
    """Whether the topic's changes are complete as they are: its rows only come."""
    return not table.upserts and not table.value_format.changelog


def state_unused(state: str) -> InvalidRequest:
    """The error of a reader that was given a state and needs none."""
    return InvalidRequest(
        f"state = {state!r} is for mode = changelog of a topic that tells upserts: leave it out", code="state-unused"
    )


def spec_of(table: KafkaDeclaration, state: str, columns: Sequence[str] | None) -> NormalizerSpec:
    """The normalizer of a table: of all columns, or of some and the key. Picklable, for tasks (`NormalizerSpec.part`).

    Raises:
        InvalidRequest: ``no-primary-key``.
        NotFound: ``unknown-column``.
    """
    if not table.primary_key:
        raise InvalidRequest(
            f"topic {table.topic} has no primary key, by which the row that a change replaces is known: declare "
            "PRIMARY KEY (…) NOT ENFORCED, or read it without mode = changelog",
            code="no-primary-key",
        )
    wanted = None if columns is None else {*columns, *table.primary_key}
    # A column of metadata is one like others here.
    fields = [f.remove_metadata() for f in RowDecoder.of(table, wanted).plan.declared]
    return NormalizerSpec.of(state, pa.schema(fields), table.primary_key)


def named(topic_id: str, offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets by partition as positions. A topic of the same name that is made later gives others."""
    return {f"{topic_id}/{partition}": offset for partition, offset in offsets.items()}


def offsets_of(topic_id: str, positions: Positions, whose: str) -> dict[int, int]:
    """The offsets by partition that positions tell.

    Raises:
        NotFound: ``topic-replaced``: they are those of another topic.
    """
    parts = [(name.rpartition("/"), at) for name, at in positions.items()]
    if any(topic != topic_id for (topic, _, _), _ in parts):
        raise NotFound(
            f"{whose} was made from another topic than the one that there is now, whose id is {topic_id}: was it "
            "deleted and made again? Begin with another folder",
            code="topic-replaced",
        )
    return {int(partition): at for (_, _, partition), at in parts}


def followed_changes(normalizer: Normalizer, batches: Iterable[tuple[pa.Table, Positions]]) -> Iterator[pa.RecordBatch]:
    """What batches change: first what was taken before and may not have arrived.

    A batch has arrived when the next one is asked for.

    Args:
        normalizer: Its state remembers how far this has come.
        batches: Rows from the normalizer's positions on, and where each batch ends.
    """
    if (left := normalizer.undelivered()) is not None:
        yield from left
        normalizer.delivered(left)
    for rows, end in batches:
        batch = normalizer.apply(rows, end)
        yield from batch
        normalizer.delivered(batch)


def scanned_changes(
    make: Callable[[str], NormalizerSpec], batches: Iterable[pa.Table], ambient: Ambient
) -> Iterator[pa.RecordBatch]:
    """What batches change that begin with nothing; the state lies in a temporary folder and goes with the reader."""
    with temporary_state() as folder, Normalizer(make(folder), ambient) as normalizer:
        for number, rows in enumerate(batches):
            yield from normalizer.apply(rows, {"batch": number})


@contextmanager
def temporary_state() -> Iterator[str]:
    """A folder for a state that goes with its reader."""
    with writing(tempfile.gettempdir()):
        made = tempfile.TemporaryDirectory(prefix="tablestore-normalizer-")
    with made as folder:
        yield f"{folder}/state"


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

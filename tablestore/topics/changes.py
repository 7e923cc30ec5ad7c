"""The complete changes of a Kafka topic with upserts: a normalizer computes them from batches of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.storage.temporary import temporary_folder
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.progress import Positions
from tablestore.normalizing.spec import NormalizerSpec

__all__ = ["followed_changes", "scanned_changes", "temporary_state"]


def followed_changes(normalizer: Normalizer, batches: Iterable[tuple[pa.Table, Positions]]) -> Iterator[pa.RecordBatch]:
    """Yields the changes of batches, first those that were computed before and may not have been delivered.

    A batch counts as delivered when the next one is requested.

    Args:
        normalizer: Its state remembers the positions.
        batches: Rows from the normalizer's positions on, and the positions at the end of each batch.
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
    """Yields the changes of batches, beginning with an empty state in a temporary folder."""
    with temporary_state() as folder, Normalizer(make(folder), ambient) as normalizer:
        for number, rows in enumerate(batches):
            yield from normalizer.apply(rows, {"batch": number})


@contextmanager
def temporary_state() -> Iterator[str]:
    """Creates a folder for a state that is removed with its reader."""
    with temporary_folder("tablestore-normalizer-") as folder:
        yield f"{folder}/state"

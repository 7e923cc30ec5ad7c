"""Complete changes of a Kafka topic that tells upserts: batches of messages go through a normalizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.storage import temporary_folder
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.progress import Positions
from tablestore.normalizing.spec import NormalizerSpec

__all__ = ["followed_changes", "scanned_changes", "temporary_state"]


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
    with temporary_folder("tablestore-normalizer-") as folder:
        yield f"{folder}/state"

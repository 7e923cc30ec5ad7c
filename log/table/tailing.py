"""Reads a log's tail up to given offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from filestore.errors import Unavailable
from log.table.store import LogBatch, LogControl, LogTail

__all__ = ["read_until"]

_POLL_SECONDS = 1.0
_PATIENCE_POLLS = 30


def read_until(tail: LogTail, ends: Mapping[int, int], where: str) -> Iterator[LogBatch | LogControl]:
    """Yields batches and control records until the tail reaches the given offsets; it may read beyond them.

    Args:
        tail: The tail.
        ends: For each of its buckets an offset that the log has.
        where: Whose log it is, for errors.

    Raises:
        NotFound: ``log-gap``.
        Unavailable: ``log-unavailable``: nothing arrives for a long time.
    """
    patience = _PATIENCE_POLLS
    while any(at < ends[bucket] for bucket, at in tail.offsets.items()):
        before = tail.offsets
        yield from tail.poll(_POLL_SECONDS)
        patience = _PATIENCE_POLLS if tail.offsets != before else patience - 1
        if not patience:
            raise Unavailable(
                f"the log of {where} gives nothing from {tail.offsets} to {dict(ends)}: is its server running? "
                "Retry then",
                code="log-unavailable",
            )

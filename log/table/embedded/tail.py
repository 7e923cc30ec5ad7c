"""Reads an embedded log as it grows (PROTOCOL.md section 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from filestore.ambient import Ambient
from log.table.config import LogConfig
from log.table.embedded.segments import CONTROL, Segments, decode_control, decode_segment, partition_path
from log.table.store import LogBatch, LogControl, LogTail, gap

__all__ = ["EmbeddedTail"]

_PAUSE_SECONDS = 0.002


class EmbeddedTail(LogTail):
    """Reads the segments of each bucket as they are added.

    Args:
        config: The log.
        offsets: Where each bucket begins.
        target: The columns wanted, and ``_kind``.
        ambient: The clock, and the waits between looks.
    """

    def __init__(self, config: LogConfig, offsets: Mapping[int, int], target: pa.Schema, ambient: Ambient) -> None:
        self._config = config
        self._offsets = dict(offsets)
        self._target = target
        self._ambient = ambient
        self._partitions = {b: Segments(partition_path(Path(config.location), b), config.if_gone) for b in offsets}

    @property
    def offsets(self) -> dict[int, int]:
        """The offset of the next record to read, by bucket."""
        return dict(self._offsets)

    def poll(self, seconds: float) -> list[LogBatch | LogControl]:
        """Looks until records have arrived or the time is over."""
        until_ms = self._ambient.now_ms() + int(seconds * 1000)
        while True:
            found = [event for bucket in self._offsets for event in self._new(bucket)]
            if found or self._ambient.now_ms() >= until_ms:
                return found
            self._ambient.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Closes the files."""
        for partition in self._partitions.values():
            partition.close()

    def _new(self, bucket: int) -> Iterator[LogBatch | LogControl]:
        partition, at = self._partitions[bucket], self._offsets[bucket]
        start, last = partition.bounds()
        if at < start:
            raise gap(self._where(bucket), f"offsets {at} to {start - 1} were trimmed")
        if at > last:
            raise gap(self._where(bucket), f"it ends with offset {last}, and was read up to {at}")
        for transaction_id, segment in partition.after(at):
            there = f"{self._where(bucket)}, offset {segment.base_offset}"
            payload = partition.payload(segment.base_offset, there)
            if payload is None:
                return  # aborted or trimmed meanwhile: the next look finds out
            end = segment.base_offset + segment.count
            if segment.kind == CONTROL:
                yield LogControl(bucket, transaction_id, decode_control(payload, there), end)
            else:
                rows = decode_segment(payload, self._target, there).slice(max(0, at - segment.base_offset))
                yield LogBatch(bucket, transaction_id, rows, end, segment.written_ms)
            self._offsets[bucket] = end

    def _where(self, bucket: int) -> str:
        return f"table {self._config.database}.{self._config.table}, bucket {bucket}"

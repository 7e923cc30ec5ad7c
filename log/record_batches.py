"""The payload of a record batch in the embedded log (PROTOCOL.md section 6)."""

from __future__ import annotations

import pyarrow as pa

from log.rows import project

__all__ = ["decode_segment", "encode_segment"]

_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def encode_segment(rows: pa.Table) -> memoryview:
    """An Arrow IPC stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_WRITE_OPTIONS) as writer:
        writer.write_table(rows.combine_chunks())
    return memoryview(sink.getvalue())


def decode_segment(payload: bytes, target: pa.Schema) -> pa.RecordBatch:
    """Its rows in the columns that are wanted; one that did not exist yet is null."""
    source = pa.ipc.open_stream(payload)
    known = set(target.names)
    wanted = [i for i, name in enumerate(source.schema.names) if name in known]
    options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
    rows = project(pa.ipc.open_stream(payload, options=options).read_all(), target)
    return rows.combine_chunks().to_batches()[0]

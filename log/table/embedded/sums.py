"""The checksum of a stored record batch (PROTOCOL.md section 6): it is behind the batch, where former versions skip it.

Arrow has no checksums, and a damaged stream can end the process that decodes it. The checksum covers what SQLite stores
beside the bytes, too: a batch at another offset or of another transaction is damaged.
"""

from __future__ import annotations

import struct

from filestore.crc import crc32
from filestore.errors import Corrupt

__all__ = ["CONTROL", "DATA", "about", "checked", "summed"]

CONTROL = "control"
DATA = "data"

_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow stream, and so of a data batch of former versions."""

_AFTER_STREAM = struct.Struct("<I4s")
_MAGIC = b"\x93sum"
_AFTER_JSON = 33
_BLANKS = bytes.maketrans(b"01", b" \t")
_DIGITS = bytes.maketrans(b" \t", b"01")


def about(base_offset: int, count: int, transaction_id: str, kind: str, written_ms: int) -> bytes:
    """Returns what is stored beside a record batch as the checksum covers it."""
    return f"{base_offset} {count} {transaction_id} {kind} {written_ms}".encode()


def summed(payload: bytes | memoryview, kind: str, beside: bytes) -> bytes:
    """Returns a record batch with its checksum behind it.

    Behind the end of an Arrow stream it is binary. Behind JSON it is a line of 32 blanks and tabs, which are the bits
    0 and 1, since parsers of JSON read on to the end.
    """
    found = crc32(beside, crc32(payload))
    if kind == CONTROL:
        return bytes(payload) + b"\n" + f"{found:032b}".encode().translate(_BLANKS)
    return b"".join((payload, _AFTER_STREAM.pack(found, _MAGIC)))


def checked(stored: object, kind: str, beside: bytes, where: str) -> memoryview:
    """Returns a stored record batch without its checksum, which it is compared with if it has one.

    Raises:
        Corrupt: ``log-record``: they differ, or the batch ends in no way in which one ends.
    """
    payload, found = _split(stored, kind) if isinstance(stored, bytes) else (None, None)
    if payload is None or (found is not None and found != crc32(beside, crc32(payload))):
        raise Corrupt(
            f"a record batch of the log ({where}) is damaged: it is not as it was written. Restore the log's folder, "
            'or let readers begin anew behind it (scan="full")',
            code="log-record",
        )
    return payload


def _split(stored: bytes, kind: str) -> tuple[memoryview | None, int | None]:
    """Returns the batch and its checksum: without a batch if it ends in no known way, without a sum as of before."""
    data = memoryview(stored)
    if kind == CONTROL:
        line = stored[-_AFTER_JSON:]
        if line[:1] != b"\n":
            return data, None
        try:
            return data[:-_AFTER_JSON], int(line[1:].translate(_DIGITS), 2)
        except ValueError:
            return None, None
    if stored.endswith(_MAGIC):
        return data[: -_AFTER_STREAM.size], _AFTER_STREAM.unpack(stored[-_AFTER_STREAM.size :])[0]
    return (data, None) if stored.endswith(_STREAM_END) else (None, None)

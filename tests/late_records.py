"""Records of a transaction that reach a partition after its end: its coordinator never hears of them."""

from __future__ import annotations

import pyarrow as pa
from kafka.record.default_records import DefaultRecordBatchBuilder

from filestore.ambient import system_ambient
from filestore.model.log_range import LogTransaction
from log.formats.log_record import DebeziumJson
from log.kafka.connection import Connection, Writer, parse_servers
from log.store import LogConfig

__all__ = ["CARELESS", "write_late"]

CARELESS = {"transaction.partition.verification.enable": "false"}
"""A broker's settings, by which it takes such records, as all did before KIP-890."""

PRODUCE = 0


def write_late(config: LogConfig, bucket: int, transaction: LogTransaction, row: pa.Table) -> None:
    """Writes one row to a bucket of which the transaction has none yet."""
    messages = DebeziumJson(config).encode(row, transaction.id, 0, 0)
    producer = {"producer_id": transaction.producer_id, "producer_epoch": transaction.producer_epoch}
    builder = DefaultRecordBatchBuilder(2, 0, True, base_sequence=0, batch_size=1 << 20, **producer)
    builder.append(0, None, b"key", messages.values[0], [])
    (address,) = parse_servers(config.bootstrap_servers or "")
    body = Writer().string(transaction.id).pack("hi", -1, 10_000).length(1).string(str(config.topic))
    connection = Connection(address, {}, 10.0, system_ambient())
    reply = connection.request(PRODUCE, 3, body.length(1).pack("i", bucket).blob(bytes(builder.build())).done())
    connection.close()
    reply.length()
    reply.string()
    reply.length()
    _, error = reply.unpack("ih")
    assert error == 0

"""Records of a transaction that reach a partition after its end, without the knowledge of its coordinator."""

from __future__ import annotations

import pyarrow as pa
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from filestore.model.log_range import LogTransaction
from log.kafka.connection import Connection
from log.kafka.security import parse_servers
from log.table.config import LogConfig
from log.table.log_record import DebeziumJson

__all__ = ["CARELESS", "write_late"]

CARELESS = {"transaction.partition.verification.enable": "false"}
"""A broker's settings, by which it takes such records, as all did before KIP-890."""


def write_late(config: LogConfig, bucket: int, transaction: LogTransaction, row: pa.Table) -> None:
    """Writes one row to a bucket of which the transaction has none yet."""
    messages = DebeziumJson(config).encode(row, transaction.id, 0, 0)
    producer = {"producer_id": transaction.producer_id, "producer_epoch": transaction.producer_epoch}
    builder = DefaultRecordBatchBuilder(2, 0, True, base_sequence=0, batch_size=1 << 20, **producer)
    builder.append(0, None, b"key", messages.values[0], [])
    (address,) = parse_servers(config.bootstrap_servers or "")
    kind = ProduceRequest.TopicProduceData
    part = kind.PartitionProduceData(index=bucket, records=bytes(builder.build()))
    topic = kind(name=str(config.topic), partition_data=[part])
    connection = Connection(address, {}, 10.0)
    response = connection.request(
        ProduceRequest(transactional_id=transaction.id, acks=-1, timeout_ms=10_000, topic_data=[topic], version=3)
    )
    connection.close()
    assert response.responses[0].partition_responses[0].error_code == 0

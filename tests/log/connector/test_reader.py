"""Readers of declared topics whose brokers are gone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from filestore.ambient import system_ambient
from filestore.errors import Unavailable
from filestore.model.schema import Column
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import RowDecoder
from log.connector.ranges import PartitionRange
from log.connector.reader import follow_from

OPTIONS = {
    "connector": "kafka",
    "topic": "t",
    "value.format": "raw",
    "properties.bootstrap.servers": "127.0.0.1:1",
    "properties.socket.timeout.ms": "100",
}


class Topic:
    """It had messages when it was asked, and then its broker died."""

    def partitions(self) -> tuple[int, ...]:
        return (0,)

    def ranges(self, *_: Any) -> tuple[PartitionRange, ...]:
        return (PartitionRange(0, 0, 5),)


def test_a_reader_of_the_existing_records_learns_that_they_do_not_arrive() -> None:
    table = KafkaDeclaration.of(TableColumns((Column("value", pa.binary()),)), (), OPTIONS)
    with pytest.raises(Unavailable) as caught:
        for found in follow_from(table, Topic(), {0: 0}, lambda: True, system_ambient(), RowDecoder.of(table)):  # type: ignore[arg-type]
            assert found.rows is None
    assert caught.value.code == "log-unavailable"

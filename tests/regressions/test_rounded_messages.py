"""A message's 12.345 was rounded into DECIMAL(10,2), and nanoseconds were cut off: now such a message is malformed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.connector.formats.format import Role
from log.connector.formats.opening import open_format
from tests.log.connector.formats.rows import Memory, opened

NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6)
KIND = pa.decimal128(10, 2)


def read(name: str, kind: pa.DataType, text: str) -> tuple[list[Any], int]:
    """Returns the values of a message whose only column has that text, and how many messages are malformed."""
    schema, row = pa.schema([pa.field("d", kind)]), f'{{"d":{text}}}'
    message = {
        "json": row,
        "csv": text.strip('"'),
        "debezium-json": f'{{"before":null,"after":{row},"op":"c"}}',
        "canal-json": f'{{"data":[{row}],"type":"INSERT"}}',
    }[name]
    found = opened(name, schema).decode([message.encode()])
    return found.rows["d"].to_pylist(), len(found.malformed)


@pytest.mark.parametrize("name", ["json", "csv", "debezium-json", "canal-json"])
@given(number=NUMBERS, quoted=st.booleans())
def test_a_decimal_is_read_with_all_its_digits_or_malformed(name: str, number: Decimal, quoted: bool) -> None:
    text = json.dumps(str(number)) if quoted else str(number)
    fits = number == number.quantize(Decimal("0.01"))
    assert read(name, KIND, text) == (([number], 0) if fits else ([], 1))


@given(number=NUMBERS)
def test_avro_of_a_writer_with_more_digits_too(number: Decimal) -> None:
    registry, wide = Memory(), pa.schema([("d", pa.decimal128(12, 4))])
    writer, reader = (
        open_format("avro-confluent", schema, {}, Role.VALUE, topic="t", registry=registry)
        for schema in (wide, pa.schema([("d", KIND)]))
    )
    found = reader.decode(writer.encode(pa.Table.from_pylist([{"d": number}], wide)))
    fits = number == number.quantize(Decimal("0.01"))
    assert (found.rows["d"].to_pylist(), len(found.malformed)) == (([number], 0) if fits else ([], 1))


@pytest.mark.parametrize("name", ["json", "csv", "debezium-json", "canal-json"])
@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_nanoseconds_are_not_cut_off(name: str, kind: pa.DataType) -> None:
    zone = "Z" if kind.tz else ""
    assert read(name, kind, f'"2026-01-01 00:00:00.123456789{zone}"') == ([], 1)
    (value,), malformed = read(name, kind, f'"2026-01-01 00:00:00.123456000{zone}"')
    assert (value.microsecond, malformed) == (123456, 0)

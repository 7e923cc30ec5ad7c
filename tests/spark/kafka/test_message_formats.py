"""Messages of Kafka tables, judged by Java's Avro and by Spark's JSON and CSV."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from filestore.model.types import to_sql
from log.connector.formats.avro.schema import avro_schema
from tests.log.connector.formats.rows import opened, plain

ROWS = pa.Table.from_pylist(
    [
        {
            "id": 1 << 40,
            "small": -3,
            "price": Decimal("-12345.67"),
            "ratio": 0.1,
            "flag": True,
            "name": 'a "ü", b',
            "data": b"\x00\xff",
            "day": dt.date(1969, 12, 31),
            "at": dt.datetime(2020, 12, 30, 12, 13, 14, 123456, dt.UTC),
        },
        {"id": 2},
    ],
    schema=pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("small", pa.int8()),
            ("price", pa.decimal128(9, 2)),
            ("ratio", pa.float64()),
            ("flag", pa.bool_()),
            ("name", pa.string()),
            ("data", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
        ]
    ),
)
NESTED = ROWS.append_column(
    "tags", pa.array([[{"m": [("k", Decimal("1.5")), ("l", None)]}, None], []], pa.list_(
        pa.struct([("m", pa.map_(pa.string(), pa.decimal128(3, 1)))])
    ))
)  # fmt: skip


def test_java_reads_our_avro_and_writes_the_same_bytes(spark: SparkSession) -> None:
    avro: Any = spark.sparkContext._jvm.org.apache.avro  # type: ignore[union-attr]
    schema = avro.Schema.Parser().parse(avro_schema(NESTED.schema))
    reader, writer = avro.generic.GenericDatumReader(schema), avro.generic.GenericDatumWriter(schema)
    rewritten = []
    for message in opened("avro", NESTED.schema).encode(NESTED):
        decoder = avro.io.DecoderFactory.get().binaryDecoder(bytearray(message or b""), None)
        datum = reader.read(None, decoder)
        assert decoder.isEnd()
        out = spark.sparkContext._jvm.java.io.ByteArrayOutputStream()  # type: ignore[union-attr]
        encoder = avro.io.EncoderFactory.get().directBinaryEncoder(out, None)
        writer.write(datum, encoder)
        rewritten.append((datum.get("id"), bytes(out.toByteArray())))
    assert [key for key, _ in rewritten] == ROWS["id"].to_pylist()
    # A map of two has no order in Java: what it wrote is compared by what it says.
    found = opened("avro", NESTED.schema).decode([message for _, message in rewritten])
    assert [sorted(dict(t["m"])) for r in found.rows.to_pylist() for t in r["tags"] if t] == [["k", "l"]]
    assert plain(found.rows.drop_columns(["tags"])) == plain(ROWS)


def _parsed(spark: SparkSession, messages: list[bytes | None], column: Any) -> list[Any]:
    frame = spark.createDataFrame([(i, (m or b"").decode()) for i, m in enumerate(messages)], "i INT, v STRING")
    rows = frame.select("i", column.alias("r")).orderBy("i").select("r.*").toArrow()
    return plain(pa.table(rows).select(ROWS.schema.names).cast(pa.schema([(f_.name, f_.type) for f_ in ROWS.schema])))


def test_spark_reads_our_json_and_csv(spark: SparkSession) -> None:
    columns = ", ".join(f"{field.name} {to_sql(field.type)}" for field in ROWS.schema)
    options = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX"}
    json = opened("json", ROWS.schema).encode(ROWS)
    assert _parsed(spark, json, f.from_json("v", columns, options)) == plain(ROWS)
    texts = (
        ROWS.drop_columns(["data"]).append_column("data", pa.array([None, None], pa.binary())).select(ROWS.schema.names)
    )
    csv = opened("csv", ROWS.schema).encode(texts)
    assert _parsed(spark, csv, f.from_csv("v", columns, {**options, "escape": '"'})) == plain(texts)


def test_we_read_spark_s_json_and_csv(spark: SparkSession) -> None:
    columns = ", ".join(f"{field.name} {to_sql(field.type)}" for field in ROWS.schema)
    frame = spark.createDataFrame([tuple(r.values()) for r in ROWS.to_pylist()], columns)
    every = f.struct(*[f.col(n) for n in ROWS.schema.names])
    messages = [r[0].encode() for r in frame.orderBy(f.desc("id")).select(f.to_json(every)).collect()]
    found = opened("json", ROWS.schema).decode(messages)
    assert found.malformed == ()
    milliseconds = plain(found.rows.drop_columns(["at"]))
    assert milliseconds == plain(ROWS.drop_columns(["at"]))
    assert found.rows["at"][0].as_py() == ROWS["at"][0].as_py().replace(microsecond=123000)

"""Declarations of tables with a connector: those that are valid, and the errors of those that are not."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import log.connector.pages
from filestore.errors import InvalidRequest, NotFound
from log.connector.formats.avro.format import AvroFormat
from log.connector.formats.malformed import Policy
from log.connector.options import Semantic
from log.connector.pages import PAGES
from log.connector.ranges import starting_offsets
from log.connector.rules import check_times
from log.connector.startup import Startup, StartupMode, specific_offsets
from tests.log.connector.tables import KAFKA, UPSERT, declared

KEYED = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
PLAIN = "id BIGINT, v STRING"


def test_a_declaration_says_what_it_is() -> None:
    table = declared(KEYED, UPSERT, sink_semantic="exactly-once", properties_group_id="g")
    assert (table.upserts, table.key_fields, table.topic) == (True, ("id",), "t")
    assert (table.semantic, table.policy) == (Semantic.EXACTLY_ONCE, Policy.FAIL)
    assert table.properties == {"group.id": "g"}
    assert table.startup == Startup(StartupMode.EARLIEST)
    assert pickle.loads(pickle.dumps(table)) == table
    assert table.effective_options["value.fields-include"] == "ALL"
    assert declared(PLAIN, KAFKA, value_format=None, format="csv").value_format.schema.names == ["id", "v"]


@pytest.mark.slow
def test_who_only_lists_tables_loads_neither_polars_nor_the_formats() -> None:
    """`tablestore tables` reads definitions of topics, too, and took its time to load what it never opens."""
    table = declared(PLAIN, KAFKA, value_format="avro")
    code = (
        "import pickle, sys\n"
        "import catalog_service.database.definitions, catalog_service.use_cases.definitions\n"
        f"table = pickle.loads({pickle.dumps(table)!r})\nassert table.topic == 't' and table.effective_options\n"
        "print([m for m in sys.modules if m == 'polars' or m.startswith('log.connector.formats.opening')])"
    )
    root = Path(log.connector.pages.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("columns", "base", "options", "code", "words"),
    [
        (PLAIN, KAFKA, {"connector": "pulsar"}, "bad-option-value", "'kafka' or 'upsert-kafka'"),
        (PLAIN, KAFKA, {"topic": None}, "missing-option", "'topic'"),
        (PLAIN, KAFKA, {"topic": "a;b"}, "bad-option-value", "one topic"),
        (PLAIN, KAFKA, {"properties_bootstrap_servers": None}, "missing-option", "properties.bootstrap.servers"),
        (PLAIN, KAFKA, {"value_format": None}, "missing-option", "value.format"),
        (PLAIN, KAFKA, {"format": "csv"}, "bad-option-value", "give one of them"),
        (PLAIN, KAFKA, {"value_format": "xml"}, "bad-option-value", "value.format = 'xml'"),
        (PLAIN, KAFKA, {"tpic": "t"}, "unknown-option", "did you mean 'topic'"),
        (PLAIN, KAFKA, {"bucket": "3"}, "unknown-option", "managed tables"),
        (PLAIN, KAFKA, {"csv_field__delimiter": ";"}, "unknown-option", "belongs to the format csv"),
        (PLAIN, KAFKA, {"key_json_map__null__key_mode": "DROP"}, "unknown-option", "belongs to the format json"),
        (PLAIN, KAFKA, {"value_json_nope": "1"}, "unknown-option", "json.nope"),
        (PLAIN, KAFKA, {"sink_delivery__guarantee": "none"}, "unknown-option", "sink.semantic"),
        (PLAIN, KAFKA, {"sink_buffer__flush_interval": "1 s"}, "unknown-option", "nothing is buffered"),
        (PLAIN, KAFKA, {"sink_parallelism": "0"}, "bad-option-value", "sink.parallelism"),
        (PLAIN, KAFKA, {"sink_parallelism": "2", "sink_semantic": "exactly-once"}, "sink-parallelism", "one task"),
        (PLAIN, KAFKA, {"properties_acks": "1"}, "connector-properties", "sink.semantic"),
        (PLAIN, KAFKA, {"properties_partitioner": "random"}, "connector-properties", "hash of their key"),
        (PLAIN, KAFKA, {"properties_auto_offset_reset": "latest"}, "connector-properties", "scan.startup.mode"),
        (PLAIN, KAFKA, {"properties_sasl_jaas_config": "x"}, "connector-properties", "properties.sasl.username"),
        (PLAIN, KAFKA, {"properties_isolation_level": "x"}, "connector-properties", "read_committed"),
        (PLAIN, KAFKA, {"properties_group_id": ""}, "connector-properties", "name a group"),
        (PLAIN, KAFKA, {"key_format": "json"}, "missing-option", "key.format needs key.fields"),
        (PLAIN, KAFKA, {"key_fields": "id"}, "missing-option", "key.fields needs key.format"),
        (PLAIN, KAFKA, {"key_format": "json", "key_fields": "nope"}, "key-fields", "'nope'"),
        (PLAIN, KAFKA, {"value_fields__include": "EXCEPT_KEY"}, "connector-key", "without a key"),
        (PLAIN, KAFKA, {"key_format": "canal-json", "key_fields": "id"}, "format-role", "canal-json"),
        (KEYED, KAFKA, {}, "connector-key", "upsert-kafka"),
        (PLAIN, UPSERT, {}, "connector-key", "PRIMARY KEY"),
        (KEYED, UPSERT, {"key_format": None}, "missing-option", "key.format"),
        (KEYED, UPSERT, {"key_fields": "id"}, "connector-key", "leave it out"),
        (KEYED, UPSERT, {"value_format": "debezium-json"}, "connector-format", "connector = kafka"),
        (KEYED, UPSERT, {"key_fields__prefix": "k_"}, "key-fields", "key.fields-prefix"),
        (KEYED, UPSERT, {"scan_startup_mode": "latest-offset"}, "startup-mode", "earliest"),
        (PLAIN, KAFKA, {"scan_startup_mode": "group-offsets"}, "bad-option-value", "'earliest-offset'"),
        (PLAIN, KAFKA, {"scan_startup_mode": "timestamp"}, "startup-mode", "timestamp-millis"),
        (PLAIN, KAFKA, {"scan_startup_timestamp__millis": "1"}, "startup-mode", "= timestamp"),
        (PLAIN, KAFKA, {"scan_startup_mode": "specific-offsets"}, "startup-mode", "specific-offsets"),
        (PLAIN, KAFKA, {"scan_malformed__records": "dead-letter"}, "malformed-policy", "scan.dead-letter-topic"),
        (PLAIN, KAFKA, {"scan_dead__letter__topic": "d"}, "malformed-policy", "both or neither"),
        ("id DOUBLE, PRIMARY KEY (id) NOT ENFORCED", UPSERT, {}, "key-type", "DOUBLE"),
        ("id INT NULL, PRIMARY KEY (id) NOT ENFORCED", UPSERT, {}, "nullable-key", "NOT NULL"),
        ("id INT, PRIMARY KEY (nope) NOT ENFORCED", UPSERT, {}, "unknown-column", "'nope'"),
        ("id INT, o BIGINT METADATA FROM 'offst'", KAFKA, {}, "unknown-metadata-key", "offset"),
        ("id INT, v MAP<INT, INT>", KAFKA, {}, "format-type", "'v'"),
    ],
)
def test_what_does_not_hold_is_reported(
    columns: str, base: dict[str, str], options: dict[str, str], code: str, words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        declared(columns, base, **options)
    assert caught.value.code == code
    assert words in caught.value.message


TIMED = "id BIGINT, at TIMESTAMP"
KEYED_BY_TIME = "at TIMESTAMP, v STRING, PRIMARY KEY (at) NOT ENFORCED"


@pytest.mark.parametrize(
    ("columns", "base", "options"),
    [
        (TIMED, KAFKA, {"value_format": "avro"}),
        ("id BIGINT, v ARRAY<STRUCT<at: TIMESTAMP_NTZ>>", KAFKA, {"value_format": "avro"}),
        (KEYED_BY_TIME, UPSERT, {"key_format": "avro"}),
    ],
)
def test_a_new_table_says_what_timestamps_in_avro_count(
    columns: str, base: dict[str, str], options: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest, match=r"avro\.timestamp_mapping\.legacy' is missing: column '(at|v)'") as caught:
        check_times(declared(columns, base, **options))
    assert caught.value.code == "missing-option"
    for legacy in ("true", "false"):
        table = declared(columns, {**base, "avro.timestamp_mapping.legacy": legacy}, **options)
        check_times(table)
        half = table.key_format if base is UPSERT else table.value_format
        assert isinstance(half, AvroFormat)
        assert half.millis is (legacy == "true")


def test_other_formats_say_it_themselves() -> None:
    for name in ("json", "csv", "raw"):
        check_times(declared("at TIMESTAMP" if name != "raw" else "v STRING", KAFKA, value_format=name))
    check_times(declared("v STRING", KAFKA, value_format="avro"))
    check_times(declared("at TIMESTAMP", {**KAFKA, "avro-confluent.url": "http://h"}, value_format="avro-confluent"))


def test_dead_letters_do_not_come_back() -> None:
    with pytest.raises(InvalidRequest, match="own topic"):
        declared(PLAIN, KAFKA, scan_malformed__records="dead-letter", scan_dead__letter__topic="t")


def test_verifying_needs_both_halves() -> None:
    keyed = {"key_format": "json", "key_fields": "id", "fields_verify__integrity": "true"}
    assert declared(PLAIN, KAFKA, **keyed)["fields.verify-integrity"]
    with pytest.raises(InvalidRequest, match="EXCEPT_KEY"):
        declared(PLAIN, KAFKA, **keyed, value_fields__include="EXCEPT_KEY")


def test_a_primary_key_may_stand_beside_changes() -> None:
    table = declared(KEYED, KAFKA, value_format="debezium-json")
    assert (table.upserts, table.primary_key, table.key_fields) == (False, ("id",), ())


@pytest.mark.parametrize("virtual", ["", " VIRTUAL"])
def test_the_time_of_a_message_may_be_the_watermark(virtual: str) -> None:
    columns = f"{PLAIN}, at TIMESTAMP METADATA FROM 'timestamp'{virtual}"
    table = declared(columns, KAFKA, watermark_column="at", watermark_delay="5 s")
    assert str(table.watermark) == "at - 5000 ms"
    with pytest.raises(InvalidRequest, match="offset") as caught:
        declared(f"{PLAIN}, `offset` BIGINT METADATA{virtual or ' VIRTUAL'}", KAFKA, watermark_column="offset")
    assert caught.value.code == "bad-watermark"


def test_a_reader_says_for_itself_how_it_reads() -> None:
    table = declared(PLAIN, KAFKA, scan_startup_mode="timestamp", scan_startup_timestamp__millis="5")
    assert table.with_scan({"scan.startup.mode": "latest-offset"}).startup == Startup(StartupMode.LATEST)
    assert table.with_scan({"scan.malformed-records": "skip"}).startup.timestamp_ms == 5
    for options, words in (({"topic": "x"}, "begin with 'scan.'"), ({"scan.nope": "1"}, "scan.nope")):
        with pytest.raises(InvalidRequest, match=words) as caught:
            table.with_scan(options)
        assert caught.value.code == "unknown-option"


OFFSETS = st.dictionaries(st.integers(0, 99), st.integers(0, 10**15), min_size=1)


@given(OFFSETS)
def test_offsets_survive_their_text(offsets: dict[int, int]) -> None:
    text = ";".join(f"partition:{p},offset:{o}" for p, o in offsets.items())
    assert dict(specific_offsets(text)) == offsets


@pytest.mark.parametrize("text", ["", "0:1", "partition:0,offset:1;partition:0,offset:2", "partition:0,offset:-1"])
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="each partition once"):
        specific_offsets(text)


@given(st.dictionaries(st.integers(0, 9), st.tuples(*[st.integers(0, 9)] * 3), min_size=1), st.data())
def test_readers_begin_where_their_options_say_and_never_outside(
    found: dict[int, tuple[int, ...]], data: st.Data
) -> None:
    first = {p: min(offsets) for p, offsets in found.items()}
    last = {p: max(offsets) for p, offsets in found.items()}
    assert starting_offsets(Startup(StartupMode.EARLIEST), first, last, {}) == first
    assert starting_offsets(Startup(StartupMode.LATEST), first, last, {}) == last
    after = {p: data.draw(st.sampled_from([-1, offsets[1]])) for p, offsets in found.items()}
    expected = {p: last[p] if after[p] < 0 else after[p] for p in found}
    assert starting_offsets(Startup(StartupMode.TIMESTAMP, 1), first, last, after) == expected
    partition, offset = data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))
    specific = Startup(StartupMode.SPECIFIC, None, ((partition, offset),))
    if partition in found and first[partition] <= offset <= last[partition]:
        assert starting_offsets(specific, first, last, {}) == first | {partition: offset}
    else:
        with pytest.raises(NotFound, match=rf"partition {partition}"):
            starting_offsets(specific, first, last, {})


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_those_of_the_code(name: str) -> None:
    text = Path(log.connector.pages.__file__).with_name(name).read_text()
    assert PAGES[name] in text, "run: python -m log.connector.pages"

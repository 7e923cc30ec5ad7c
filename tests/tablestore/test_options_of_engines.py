"""Each option has an effect with a table's merge engine, or is refused: none is accepted and does nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from filestore.delta.actions import CHANGE_FEED_PROPERTY
from filestore.errors import InvalidRequest, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.model.field_options import FIELD_OPTIONS
from filestore.model.options import OPTIONS
from filestore.model.stray_options import without_effect
from tablestore import Store, Table
from tablestore.defaults import with_defaults
from tests.depth import sampled
from tests.tables import define

Row = dict[str, Any]

_COLUMNS = (
    "k BIGINT, s BIGINT, g BIGINT, v BIGINT, t STRING, a ARRAY<STRING>, n ARRAY<STRUCT<id: INT, x: INT>>, o BIGINT"
)
_FIELDWISE = {"merge-engine": "partial-update"}
_SUMMING = {"merge-engine": "aggregation"}
ENGINES: dict[str, tuple[list[str], dict[str, str]]] = {
    "no key": ([], {}),
    "deduplicate": (["k"], {}),
    "deduplicate by sequence": (["k"], {"sequence.field": "s"}),
    "first-row": (["k"], {"merge-engine": "first-row"}),
    "partial-update": (["k"], _FIELDWISE),
    "partial-update by sequence": (["k"], _FIELDWISE | {"sequence.field": "s"}),
    "partial-update in groups": (["k"], _FIELDWISE | {"fields.g.sequence-group": "v,t,a,n"}),
    "aggregation": (["k"], _SUMMING),
    "aggregation by sequence": (["k"], _SUMMING | {"sequence.field": "s"}),
    "aggregation that retracts": (["k"], _SUMMING | {"fields.default-aggregate-function": "last_value"}),
}
"""For each engine the key, and the options."""

_OF_ROWS: list[tuple[str, str, dict[str, str]]] = [
    ("ignore-delete", "true", {}),
    ("partial-update.remove-record-on-delete", "true", {}),
    ("aggregation.remove-record-on-delete", "true", {}),
    ("fields.default-aggregate-function", "first_value", {}),
    ("fields.default-aggregate-function", "sum", {"fields.t.aggregate-function": "max"}),
    ("sequence.field", "o", {}),
    ("sequence.tombstone-retention", "3 d", {}),
    ("write-mode", "merge-on-read", {}),
    ("changelog-producer", "input", {}),
    ("changelog-producer", "lookup", {}),
    ("changelog-producer", "full-compaction", {"write-mode": "merge-on-read"}),
    ("fields.g.sequence-group", "v", {}),
    ("fields.o.sequence-group", "s", {}),
    *((f"fields.{name}.aggregate-function", "sum", {}) for name in "sgvo"),
    *((f"fields.{name}.ignore-retract", "true", {}) for name in "sgvo"),
    *(("fields.t.list-agg-delimiter", ";", more) for more in ({}, {"fields.t.aggregate-function": "listagg"})),
    *(("fields.a.distinct", "true", more) for more in ({}, {"fields.a.aggregate-function": "collect"})),
    *(("fields.n.nested-key", "id", more) for more in ({}, {"fields.n.aggregate-function": "nested_update"})),
]
"""Options on which rows and changes depend, each with a value, and with other options that it needs."""
_OF_ANY_ENGINE = [
    "bucket",
    "bucket-key",
    "merge-engine",
    "full-compaction.delta-commits",
    "changelog-producer.compaction-interval",
    "target-file-size",
    "write-buffer-size",
    "row-group.rows",
    "file.compression",
    "file.bloom-filter",
    "file.bloom-filter.fpp",
    "lookup.cache-max-memory-size",
    "lookup.cache-max-disk-size",
    "lookup.cache-file-retention",
    "checkpoint.interval",
    "commit.max-retries",
    "snapshot.num-retained.min",
    "snapshot.num-retained.max",
    "snapshot.time-retained",
    "consumer.expiration-time",
    "tag.automatic-creation",
    "tag.creation-period",
    "tag.num-retained-max",
    "num-sorted-run.compaction-trigger",
    "compaction.size-ratio",
    "compaction.max-size-amplification-percent",
    "compaction.in-writer",
    "partition.expiration-time",
    "partition.expiration-check-interval",
    "partition.expiration-strategy",
    "partition.timestamp-pattern",
    "partition.timestamp-formatter",
    "watermark.column",
    "watermark.delay",
    "view.query",
    "view.engine",
    "view.incremental",
    "view.local-memory",
    "view.whole-size",
    "view.check",
    "view.removed-events",
    "view.expired-versions",
    "schema.evolution-mode",
    "log.system",
    "log.consistency",
    "log.changelog-mode",
    "log.delete-format",
    "log.key.format",
    "log.format",
    "log.retention",
    "log.lease-timeout",
    "log.scan",
    "log.scan.timestamp-millis",
    "log.kafka.bootstrap.servers",
    "log.kafka.topic",
    "log.kafka.transactions",
    "log.kafka.replication-factor",
    "log.kafka.cleanup.policy",
    "allow-literal-secrets",
]
"""Options that do the same with every engine, or that rules of their own refuse."""


def row(s: int | None, g: int | None, v: int | None, more: Any = None, kind: str = "+I", k: int = 1) -> Row:
    values = {"t": None, "a": None, "n": None, "o": None} if more is None else more
    return {"k": k, "s": s, "g": g, "v": v, **values, "_kind": kind}


_X: Row = {"t": "x", "a": ["p"], "n": [{"id": 1, "x": 1}], "o": 1}
_Y: Row = {"t": "y", "a": ["q", "p"], "n": [{"id": 1, "x": 2}, {"id": 2, "x": 3}], "o": 2}
_Z: Row = {"t": "z", "a": ["r"], "n": [{"id": 2, "x": 4}], "o": None}
HISTORIES = [
    [[row(1, 1, 10, _X)], [row(2, 2, 20, _Y)], [row(1, 1, 5, _Z)], [row(3, None, None)]],
    [
        [row(1, 1, 10, _X), row(1, 1, 10, _X, k=2)],
        [row(2, 2, 20, _Y)],
        [row(2, 2, 20, _Y, "-D")],
        [row(0, 0, 3, _Z, "-D", k=2)],
        [row(0, 0, 4, _Z, k=2)],
    ],
    [[row(1, 1, 10, _X)], [row(2, 2, 10, _Y, "-U"), row(2, 2, 11, _Y, "+U")]],
    [[row(1, 1, 10, _X)], [row(2, 2, 20, _Y, "-D")]],
]


def observed(store: Store, key: list[str], options: dict[str, str]) -> list[object]:
    """Everything that users may see of a few histories: rows, errors, changes, and what is remembered or pending."""
    found: list[object] = []
    for history in HISTORIES:
        table = store.create_table("shop.t", _COLUMNS, primary_key=key, options={"log.system": "none", **options})
        assert isinstance(table, Table)
        for rows in history:
            try:
                table.write(rows)
            except TableStoreError as error:
                found.append(error.code)
            found.append(sorted(map(repr, table.scan().to_pylist())))
        state = table.filestore.state()
        feed = table.follow(mode="changelog", version=0, stop=state.version)
        found.append([repr(one) for batch in feed for one in batch.to_pylist()])
        found += [state.definition.tombstone_retention_ms, len(state.pending), _feed_of(table)]
        store.drop_table("shop.t")
    return found


def _feed_of(table: Table) -> tuple[object, ...]:
    """Whether Delta has a feed of changes, and in which versions that are files."""
    store = table.filestore
    folder = f"{store.location}/_delta_log"
    names = [name for name in store.storage.list_names(folder) if re.fullmatch(r"\d{20}\.json", name)]
    entries = [store.storage.read(f"{folder}/{name}") for name in sorted(names)]
    actions = [json.loads(line) for entry in entries for line in entry.splitlines()]
    configured = [a["metaData"]["configuration"].get(CHANGE_FEED_PROPERTY) for a in actions if "metaData" in a]
    return configured, sum("cdc" in a for a in actions)


CASES = [(engine, *case) for engine in ENGINES for case in _OF_ROWS]


@pytest.mark.few(6)
@pytest.mark.parametrize(("engine", "name", "value", "more"), sampled(CASES, fast=60, test=20, names=4))
def test_an_option_of_rows_has_an_effect_or_is_refused(
    store: Store, engine: str, name: str, value: str, more: dict[str, str]
) -> None:
    key, options = ENGINES[engine]
    if name.endswith(".ignore-retract") and options.items() <= (_SUMMING | {"sequence.field": "s"}).items():
        # a delete is refused as long as one column cannot retract
        others = (
            other for other in "sgvtano" if f"fields.{other}." not in name and options.get("sequence.field") != other
        )
        more = {f"fields.{other}.ignore-retract": "true" for other in others}
    if options.get(name) == value or set(more) & set(options):
        return
    try:
        found = observed(store, key, {**options, **more, name: value})
    except InvalidRequest as error:
        assert error.code in ("merge-engine", "sequence-field", "write-mode", "changelog-producer"), error
        return
    assert found != observed(store, key, {**options, **more}), f"{name} = {value} is accepted, and does nothing"


def test_all_options_are_known_here() -> None:
    """A new option has to be in one of the lists above."""
    names = {name for name, _, _ in _OF_ROWS if not name.startswith("fields.") or name in OPTIONS}
    assert names | set(_OF_ANY_ENGINE) == set(OPTIONS)
    assert not names & set(_OF_ANY_ENGINE)
    assert {name.rpartition(".")[2] for name, _, _ in _OF_ROWS if name not in OPTIONS} == set(FIELD_OPTIONS)


@pytest.mark.parametrize(
    ("default", "expected"), [("sum", 3), ("max", 2), ("first_value", 1), ("last_value", 2), ("product", 2)]
)
def test_a_default_function_merges_the_columns_of_a_sequence_group(store: Store, default: str, expected: int) -> None:
    """It was accepted with partial-update, and ignored."""
    options = _FIELDWISE | {"fields.seq.sequence-group": "v", "fields.default-aggregate-function": default}
    table = store.create_table("shop.t", "k INT, seq INT, v INT", primary_key=["k"], options=options)
    for number in (1, 2):
        table.write([{"k": 0, "seq": number, "v": number}])
    assert [tuple(one.values()) for one in table.scan().to_pylist()] == [(0, 2, expected)]


def test_columns_of_their_own_function_or_that_order_rows_have_no_default() -> None:
    options = {
        "merge-engine": "partial-update",
        "sequence.field": "s",
        "fields.g,h.sequence-group": "v,w",
        "fields.w.aggregate-function": "count",
        "fields.default-aggregate-function": "max",
    }
    spec = define("k INT, s INT, g INT, h INT, v INT, w INT, x STRING", ["k"], **options).merging
    found = {name: field.function for name, field in spec.fields.items()}
    of_order = dict.fromkeys("gh", "last_value") | {"s": "last_non_null_value"}
    assert found == of_order | {"v": "max", "w": "count", "x": "max"}


def test_a_default_function_that_a_column_does_not_take_is_refused_but_read() -> None:
    """Earlier versions accepted it with partial-update, so a table may have it."""
    options = _FIELDWISE | {"fields.g.sequence-group": "t,v", "fields.default-aggregate-function": "sum"}
    with pytest.raises(
        InvalidRequest, match=r"= sum takes numbers, and column 't' is STRING: set fields\.t\."
    ) as caught:
        define("k INT, g INT, t STRING, v INT", ["k"], **options)
    assert caught.value.code == "merge-engine"
    made = define("k INT, g INT, t STRING, v INT", ["k"], **options, **{"fields.t.aggregate-function": "max"})
    stored = {n: v for n, v in made.to_properties().items() if not n.endswith("fields.t.aggregate-function")}
    found = TableDefinition.from_delta(
        {"configuration": stored, "schemaString": json.dumps(made.schema.to_delta()), "partitionColumns": []}
    )
    assert {name: field.function for name, field in found.merging.fields.items()} == {
        "g": "last_value",
        "t": "last_value",
        "v": "sum",
    }


@pytest.mark.parametrize(
    ("key", "options", "message"),
    [
        ("k", {"sequence.tombstone-retention": "2 d"}, "remembers deletes: leave it out"),
        ("k", {**_SUMMING, "sequence.field": "v", "sequence.tombstone-retention": "2 d"}, "remembers deletes"),
        ("", {"ignore-delete": "TRUE"}, "takes no deletes"),
        ("k", {**_FIELDWISE, "fields.v.ignore-retract": "true"}, "in no sequence group"),
        (
            "k",
            {**_FIELDWISE, "fields.g.sequence-group": "v", "fields.g.aggregate-function": "max"},
            "orders a sequence group",
        ),
    ],
)
def test_options_without_an_effect_are_refused(store: Store, key: str, options: dict[str, str], message: str) -> None:
    """Each was accepted, and did nothing, or destroyed the order of a group."""
    with pytest.raises(InvalidRequest, match=message) as caught:
        store.create_table("shop.t", "k INT, g INT, v INT", primary_key=[*key], options=options)
    assert caught.value.code == "merge-engine"


def test_a_default_of_all_tables_is_left_out_where_it_would_do_nothing() -> None:
    defaults = {"sequence.tombstone-retention": "2 d", "ignore-delete": "true", "bucket": "2"}
    assert with_defaults(defaults, {"sequence.field": "v"}, keyed=True) == {**defaults, "sequence.field": "v"}
    assert with_defaults(defaults, {}, keyed=False) == {"bucket": "2"}
    assert with_defaults(defaults, _SUMMING, keyed=True) == {**_SUMMING, "ignore-delete": "true", "bucket": "2"}
    assert list(without_effect({**defaults, "ignore-delete": "false"}, keyed=False)) == ["sequence.tombstone-retention"]


def test_a_table_that_has_such_an_option_may_be_changed(store: Store) -> None:
    table = store.create_table(
        "shop.t",
        "k INT, v INT",
        primary_key=["k"],
        options={"sequence.field": "v", "sequence.tombstone-retention": "2 d"},
    )
    table.alter("SET sequence.tombstone-retention = 3 d")
    other = store.create_table("shop.u", "k INT, v INT", primary_key=["k"])
    with pytest.raises(InvalidRequest, match="remembers deletes"):
        other.alter("SET sequence.tombstone-retention = 3 d")

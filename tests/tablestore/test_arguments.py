"""Arguments of all public functions: a wrong one is a `TableStoreError`, and nothing is changed by it.

The functions and their parameters are found by introspection, so that a new one is checked by these tests, too.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import catalog_service.client
import tablestore
from catalog_service.client import EmbeddedCatalog, HttpCatalog
from filestore.arguments import _Names
from filestore.errors import InvalidRequest, TableStoreError
from filestore.life.consumers import Consumer
from tablestore import Ingestion, KafkaTable, Normalizer, NormalizerSpec, Pace, Store, Table
from tablestore.spark import SparkStore, spark_session
from tablestore.spark.kafka.table import SparkKafkaTable
from tests.warehouses import warehouse

CLASSES = [Store, Table, KafkaTable, Normalizer, NormalizerSpec, Ingestion, Consumer, EmbeddedCatalog, HttpCatalog]
CLASSES += [SparkStore, SparkKafkaTable]
FUNCTIONS = [tablestore.connect, tablestore.metadata_column, catalog_service.client.connect, spark_session]
JUDGED_ELSEWHERE = ("Rows", "Keys", "Like | None")
"""They have many shapes: `arrow_rows` and `asked_keys` judge them, and `test_rows_and_keys` shows it."""

ODD: list[Any] = [
    *(None, True, False, 0, 1.5, 2**70, float("nan"), Decimal(1), 1j, "", "id", b"id", bytearray(b"x"), ..., object()),
    *([], [1], [None], [["id"]], (), ("id", 1.5), (1, "id"), ("a", 1, 2), {"id"}, {}, {1: "a"}, {"a": None}, {"a": []}),
    *(np.int64(1), np.float64(1.5), np.bool_(True), np.array([1]), np.datetime64("2026-01-01"), pd.NaT, range(2)),
    *(date(2026, 1, 1), timedelta(1), datetime(2026, 1, 1), Path("x"), pl.col("id"), pa.array(["id"]), len, int),
    *(pa.table({"id": [1]}), pl.DataFrame({"id": [1]}), RuntimeError("x")),
]
"""Among them values that fit some parameters: a parameter is given those that do not fit it."""


def public_functions() -> Iterator[tuple[type | None, Callable[..., Any]]]:
    for owner in CLASSES:
        for name, member in inspect.getmembers_static(owner):
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod)):
                yield owner, member.__func__ if isinstance(member, classmethod) else member
    yield from ((None, function) for function in FUNCTIONS)
    yield Pace, Pace.__init__


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Of a function without ``self``, those that are checked by their annotations."""
    found = inspect.signature(inspect.unwrap(function)).parameters
    return {n: p for n, p in found.items() if n not in ("self", "cls") and p.annotation not in JUDGED_ELSEWHERE}


CASES = [(o, f, name) for o, f in public_functions() for name in parameters(f)]


def texts(value: Any) -> bool:
    return type(value) in (list, tuple) and all(isinstance(item, str) for item in value)


def nothing(value: Any) -> bool:
    return type(value) in (list, tuple) and not value


def settings_of(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(n, str) and isinstance(v, str) for n, v in value.items())


def whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


FITS: dict[str, Callable[[Any], bool]] = {
    "Mapping[str, Any]": lambda value: isinstance(value, dict) and all(isinstance(name, str) for name in value),
    "Mapping[str, str]": settings_of,
    "None": lambda value: value is None,
    "Observe": callable,
    "Overwrite": lambda value: isinstance(value, bool | np.bool_ | str | dict) or nothing(value),
    "PathLike[str]": lambda value: isinstance(value, Path),
    "Positions": lambda value: isinstance(value, dict) and not value,
    "Predicate": lambda value: isinstance(value, str | pl.Expr),
    "Sequence[Mapping[str, Any]]": nothing,
    "Sequence[str]": texts,
    "Stop": lambda value: value is None or whole(value) or callable(value),
    "bool": lambda value: isinstance(value, bool | np.bool_),
    "datetime": lambda value: isinstance(value, datetime) and value is not pd.NaT,
    "int": whole,
    "str": lambda value: isinstance(value, str),
    "timedelta": lambda value: isinstance(value, timedelta),
}
ALIASES = ("Expired", "Kind", "Mode", "OnGap", "ScanFrom")
"""Literals, for editors: the functions themselves say which words they take."""
FITS |= dict.fromkeys(ALIASES, FITS["str"])
"""For each part of an annotation which of the odd values fit it; of classes, none does."""
ALIKE = {"dict[str, Any]": "Mapping[str, Any]", "Sequence[str | PathLike[str]]": "Sequence[str]"}
UNCHECKED = ("Storage", "Storage | None")
"""Protocols: what keeps to one cannot be seen from outside."""


def unfit(annotation: str) -> list[Any]:
    for spelled, known in ALIKE.items():
        annotation = annotation.replace(spelled, known)
    parts = annotation.split(" | ")
    return [value for value in ODD if not any(fits(value) for part in parts if (fits := FITS.get(part)))]


def fitting(function: Callable[..., Any], name: str) -> Any:
    """Something of the right type for a parameter that has to be given beside the one that is wrong."""
    annotation = parameters(function)[name].annotation
    plain = {
        "None": None,
        "str": "a",
        "int": 1,
        "Sequence[str]": [],
        "Mapping[str, str]": {},
        "Mapping[str, Any]": {},
        "Predicate": "id = 1",
        "datetime": datetime(2026, 1, 1),
        "Positions": {},
    }
    for part in annotation.split(" | "):
        if part in plain:
            return plain[part]
    try:
        kind = eval(annotation, inspect.unwrap(function).__globals__)
    except NameError:  # imported for type checkers only: such a class is known by its name
        kind = type(annotation, (), {})
    return object.__new__(kind) if inspect.isclass(kind) else []


@pytest.fixture(scope="module")
def kept() -> Iterator[Store]:
    with warehouse() as store:
        table = store.create_table("shop.orders", "id BIGINT, v STRING", primary_key=["id"])
        table.write(pa.table({"id": [1, 2], "v": ["a", "b"]}))
        yield store


def content(store: Store) -> tuple[object, ...]:
    table = store.table("shop.orders")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=str)
    state = table.filestore.state()
    return store.list_databases(), store.list_tables("shop"), state.version, rows, [c.id for c in table.consumers()]


def call(owner: type | None, function: Callable[..., Any], given: dict[str, Any], rest: Sequence[Any] = ()) -> Any:
    """Calls a method on something that is none of its class's objects: no method gets as far as to look at it."""
    first = [] if owner is None else [object.__new__(owner)]
    return function(*first, *rest, **given)


@pytest.mark.few(120)
@pytest.mark.parametrize(("owner", "function", "name"), CASES, ids=[f"{f.__qualname__}-{n}" for _, f, n in CASES])
def test_every_argument_of_every_public_function_is_checked(
    owner: type | None, function: Callable[..., Any], name: str
) -> None:
    described = inspect.signature(inspect.unwrap(function)).parameters
    needed = [n for n, p in described.items() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    given = {n: fitting(function, n) for n in parameters(function) if n in needed and n != name}
    given |= {n: None for n in needed if described[n].annotation in JUDGED_ELSEWHERE}
    wrong = described[name]
    for value in () if wrong.annotation in UNCHECKED else unfit(wrong.annotation):
        rest = [value] if wrong.kind is wrong.VAR_POSITIONAL else []
        with pytest.raises(InvalidRequest) as refused:
            call(owner, function, given if rest else {**given, name: value}, rest)
        assert refused.value.code == "bad-argument", (function, name, value)
        assert f"the argument {name} " in refused.value.message


LONG = 2**70
MOMENTS = [datetime.min, datetime.max, datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), datetime(2026, 1, 1)]
MOMENTS += [datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), datetime(1970, 1, 1, tzinfo=UTC)]
RIGHT_TYPES: dict[str, list[Any]] = {
    "Mapping[str, str]": [{"": ""}, {"\0": "a"}, {"bucket": "\ud800"}, {"bucket": 0}, {"connector": ""}, {"a": True}],
    "None": [None],
    "Overwrite": [{}, {"id": 1}, {"": 1}, [{}], [], "static", "", [{"id": object()}]],
    "Positions": [{}, {"": 1}, {"a": -1}, {"a": LONG}, {"\ud800": 1}],
    "Predicate": ["", "\0", "\ud800 = 1", "id", "id = 'x'", pl.lit(1), pl.col("*"), "id > " + "9" * 400],
    "Sequence[Mapping[str, Any]]": [[{}], [{"id": 1}], [{"a": None}], []],
    "Sequence[str]": [[], [""], ["*"], ["\0"], ["id", "id"], ["\ud800"], ["ID"], ["a" * 1000]],
    "Stop": [-1, LONG, -LONG],
    "datetime": MOMENTS,
    "int": [-1, 0, 1, 2**31, 2**63, LONG, -LONG, np.int64(1), np.uint8(3)],
    "pa.Schema": [pa.schema([]), pa.schema([("", pa.int64())]), pa.schema([("a", pa.null())])],
    "str": ["", " ", "\0", "\ud800", "*", "..", "../x", "a/b", "shop.other", "shop.$x", "A" * 1000, "é", "a.b.c"],
    **{alias: ["", "full", "latest", "upsert", "Full", "\0"] for alias in ALIASES},
    "timedelta": [timedelta.min, timedelta.max, timedelta(0), timedelta(-1)],
    "tuple[str, int]": [("", 1), ("a", -1), ("a", LONG), ("\0", 1), ("a", np.int64(1)), ["a", 2]],
}
"""Values of the right type, of which most are good for nothing."""

SHOP: dict[Callable[..., Any], dict[str, Any]] = {
    Store.create_database: {"name": "shop"},
    Store.create_table: {"name": "shop.t", "schema": "id BIGINT"},
    Store.drop_database: {"name": "shop"},
    Store.drop_table: {"name": "shop.no"},
    Store.list_tables: {"database": "shop"},
    Store.kafka_table: {"name": "shop.orders"},
    Store.any_table: {"name": "shop.orders"},
    Store.table: {"name": "shop.orders"},
    Store.table_id: {"name": "shop.orders"},
}
ROWS = pa.table({"id": [1], "v": ["z"]})
ORDERS: dict[Callable[..., Any], dict[str, Any]] = {
    Table.alter: {"changes": "DROP COLUMN no"},
    Table.consumer: {"consumer_id": "a"},
    Table.create_tag: {"name": "a", "version": LONG},
    Table.delete: {"where": "id = 1"},
    Table.delete_consumer: {"consumer_id": "a"},
    Table.delete_tag: {"name": "a"},
    Table.drop_partitions: {"partitions": [{"id": 1}]},
    Table.files: {},
    Table.follow: {"stop": 1},
    Table.get: {"keys": [1]},
    Table.lookup: {"rows": ROWS.select(["id"])},
    Table.plan_alter: {"changes": "DROP COLUMN v"},
    Table.remove_orphans: {"dry_run": True},
    Table.rollback: {"version": LONG},
    Table.scan: {},
    Table.snapshots: {},
    Table.system: {"name": "files"},
    Table.update: {"values": {"v": 1}, "where": "id = 1"},
    Table.version_at: {"timestamp": datetime(2026, 1, 1, tzinfo=UTC)},
    Table.version_of: {"version": None, "timestamp": None, "tag": None},
    Table.write: {"rows": ROWS, "app": ("a", LONG)},
}
"""Arguments with which a function changes nothing, be it because they are refused."""


@st.composite
def odd_calls(draw: st.DrawFn) -> tuple[Callable[..., Any], dict[str, Any]]:
    function = draw(st.sampled_from([*SHOP, *ORDERS]))
    given = dict({**SHOP, **ORDERS}[function])
    named = {n: p.annotation for n, p in parameters(function).items()}
    values = {
        n: [value for part in kind.split(" | ") for value in RIGHT_TYPES.get(part, ())] for n, kind in named.items()
    }
    for name in draw(st.lists(st.sampled_from([n for n in values if values[n]]), min_size=1, max_size=2, unique=True)):
        given[name] = draw(st.sampled_from(values[name]))
    return function, given


@given(odd_calls())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_of_the_right_type_that_are_good_for_nothing(
    kept: Store, made: tuple[Callable[..., Any], dict[str, Any]]
) -> None:
    function, given_ = made
    before, rest = content(kept), [given_.pop("changes")] if "changes" in given_ else []
    on = kept if function in SHOP else kept.table("shop.orders")
    try:
        found = function(on, *rest, **given_)
        if function in (Table.scan, Table.system):
            found.to_arrow()
        if function is Table.follow:
            next(iter(found), None)
            found.close()
    except TableStoreError as error:
        assert error.message
        assert content(kept) == before


@pytest.mark.parametrize("value", ODD, ids=[f"{number}-{type(v).__name__}" for number, v in enumerate(ODD)])
def test_rows_and_keys(kept: Store, value: Any) -> None:
    table, before = kept.table("shop.orders"), content(kept)
    for keys in (value, [value], [(value,)], [{"id": value}], [1, value]):
        try:
            table.get(keys)
        except TableStoreError as error:
            assert error.message
    if not isinstance(value, pa.Table | pl.DataFrame) and not nothing(value):
        with pytest.raises(TableStoreError):
            table.write(value)
    assert content(kept) == before


def test_truth_values_are_no_numbers(kept: Store) -> None:
    """``get([True])`` was the row of key 1, and ``scan(version=True)`` version 1."""
    table = kept.table("shop.orders")
    for keys in ([True], [(True,)], [{"id": False}], pa.table({"id": [True]}), [np.bool_(True)]):
        with pytest.raises(InvalidRequest) as refused:
            table.get(keys)
        assert refused.value.code == "bad-value"


def test_what_is_taken_beside_the_types_themselves(folder: Path) -> None:
    """Paths, numpy's numbers, lists for tuples, columns of names, and numbers as options."""
    names = pd.Index(["id"])
    with tablestore.connect(folder / "warehouse") as store:
        store.create_database("shop", if_not_exists=np.bool_(True))
        options: Any = {"bucket": np.int64(2), "compaction.in-writer": False}
        table = store.create_table("shop.t", "id BIGINT", primary_key=names, options=options)
        assert isinstance(table, Table)
        assert (table.definition.options["bucket"], table.definition.options["compaction.in-writer"]) == (2, False)
        app: Any = ["job", np.int32(7)]
        for _ in range(2):
            assert table.write(pa.table({"id": [1]}), app=app).version == 1
        assert table.scan(columns=np.array(["id"]), version=np.uint8(1)).to_arrow().num_rows == 1
        moment = datetime.now(timezone(timedelta(hours=14)))
        assert table.version_at(moment) == 1
    with Normalizer.open(folder / "state", "id BIGINT", ("id",)) as normalizer:
        assert normalizer.positions == {}


def test_a_secret_is_not_shown() -> None:
    for given_ in ({"token": b"geheim"}, {"options": {"table-storage.x": b"geheim"}}, {"options": ["geheim"]}):
        with pytest.raises(InvalidRequest) as refused:
            tablestore.connect("warehouse", **given_)  # type: ignore[arg-type]
        assert "geheim" not in refused.value.message


def test_regression_annotations_of_a_decorated_method_are_those_of_its_own_module(folder: Path) -> None:
    """They were looked up in the module of the decorator, where ``Sequence`` is something else."""
    with tablestore.connect(folder / "warehouse") as store:
        store.create_database("shop")
        with store.staged_table("shop.t", "id BIGINT", primary_key=["id"]) as table:
            assert isinstance(table, Table)
            table.write([{"id": 1}])
        with (
            pytest.raises(InvalidRequest, match="primary_key"),
            store.staged_table("shop.u", "id INT", primary_key="id"),
        ):
            pass
        assert store.list_tables("shop") == ["t"]


def test_regression_a_debugger_finds_no_names_that_are_not_there() -> None:
    """A frame that evaluates an annotation said that ``__tracebackhide__`` is a class, and pytest called it."""
    names = _Names({"a": 1})
    assert (names["a"], names["len"], names["OnlyForTypeCheckers"].__name__) == (1, len, "OnlyForTypeCheckers")
    with pytest.raises(KeyError):
        names["__tracebackhide__"]


@pytest.mark.slow
def test_the_first_call_reads_the_annotations_and_an_import_does_not() -> None:
    program = (
        "import tablestore.table, filestore.arguments as a; made = []; a._Plan = lambda *_: made.append(1); "
        "import tablestore.store, tablestore.kafka_table; print(len(made))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"

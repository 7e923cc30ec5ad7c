"""A view has the values of the session that created it, whoever refreshes or examines it, and in whichever way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from filestore.errors import InvalidRequest
from tablestore import Store
from tablestore.spark import SparkStore
from tablestore.spark.batch.view_session import in_view_session, view_settings
from tests.depth import Depth

pytestmark = pytest.mark.slow

Ask = Callable[[SparkSession, Store], object]

_DEPENDING: dict[str, tuple[str, str, str]] = {
    "session.timeZone": ("Europe/Berlin", "UTC", "CAST(at AS STRING)"),
    "ansi.enabled": ("false", "true", "CAST(word AS INT)"),
    "legacy.timeParserPolicy": ("LEGACY", "CORRECTED", "to_date(day, 'yyyy-MM-dd')"),
    "decimalOperations.allowPrecisionLoss": ("false", "true", "price * price"),
    "mapKeyDedupPolicy": ("LAST_WIN", "EXCEPTION", "map_from_arrays(array(id, id), array(1, 2))"),
    "jsonGenerator.ignoreNullFields": ("false", "true", "to_json(named_struct('a', word, 'b', CAST(NULL AS INT)))"),
    "legacy.sizeOfNull": ("false", "true", "size(IF(id < 0, array(1), NULL))"),
    "function.concatBinaryAsString": ("true", "false", "concat(raw, raw)"),
    "chunkBase64String.enabled": ("false", "true", "base64(CAST(repeat(word, 100) AS BINARY))"),
    "timestampType": ("TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "to_timestamp('2026-03-29 02:30:00')"),
    "legacy.castComplexTypesToString.enabled": ("true", "false", "CAST(array(id, NULL) AS STRING)"),
}
"""For each setting its value where the view is created, that where it is refreshed, and what depends on it."""
_ITEMS = ", ".join(f"{item} AS c{number}" for number, (_, _, item) in enumerate(_DEPENDING.values()))
_QUERY = f"SELECT id, {_ITEMS} FROM lake.shop.t"
_WAYS: dict[str, Ask] = {
    "REFRESH": lambda session, _: session.sql("REFRESH MATERIALIZED VIEW lake.shop.v"),
    "CALL": lambda session, _: session.sql("CALL lake.sys.refresh('shop.v')"),
    "FULL": lambda session, _: session.sql("REFRESH MATERIALIZED VIEW lake.shop.v FULL"),
    "Python": lambda session, store: SparkStore(session, store).refresh("shop.v"),
}


def of(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Makes a session with the catalog and other settings."""
    made = session.newSession()
    kept = {name: value for name, value in session.conf.getAll.items() if name.startswith("spark.sql.catalog.")}
    for name, value in {**kept, **{f"spark.sql.{name}": value for name, value in settings.items()}}.items():
        made.conf.set(name, value)
    made.sql("SELECT 1").collect()  # Delta has settings of its own for a session, which its first statement makes
    return made


def state_of(session: SparkSession) -> tuple[Any, ...]:
    """Returns what a refresh must not change for whoever asks for it."""
    jvm = session._jvm
    assert jvm is not None
    active = jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession()
    own = active.get().sessionUUID() if active.isDefined() else None
    conf = jvm.org.apache.spark.sql.internal.SQLConf.getExistingConfIfSet().isDefined()
    return session.conf.getAll, own, conf, SparkSession.getActiveSession()


def shown(session: SparkSession, query: str) -> list[str]:
    return sorted(repr(row) for row in session.sql(query).collect())


@pytest.mark.deep  # tests/spark/batch/test_view_limits.py has one way
def test_every_way_to_the_rows_of_a_view_has_its_settings(session: SparkSession, store: Store, depth: Depth) -> None:
    """In a procedure of SQL the query was parsed with the settings of the session that asked for the refresh."""
    berlin = of(session, {name: ours for name, (ours, _, _) in _DEPENDING.items()})
    other = of(session, {name: theirs for name, (_, theirs, _) in _DEPENDING.items()})
    berlin.sql(
        "CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, at TIMESTAMP_LTZ, word STRING, day STRING, "
        "price DECIMAL(30, 10), raw BINARY)"
    )
    row = "TIMESTAMP_LTZ '2026-07-01 12:00:00', 'x', '2026-1-5', 1.5, X'61'"
    berlin.sql(f"INSERT INTO lake.shop.t VALUES (1, {row})")
    berlin.sql(f"CREATE MATERIALIZED VIEW lake.shop.v AS {_QUERY}")
    before = state_of(other)
    for number, way in enumerate(depth.sample(_WAYS, 2), 2):
        berlin.sql(f"INSERT INTO lake.shop.t VALUES ({number}, {row})")
        _WAYS[way](other, store)
        assert state_of(other) == before
        assert shown(berlin, "SELECT * FROM lake.shop.v") == shown(berlin, _QUERY), way
        assert other.sql("CALL lake.sys.doctor('shop.v')").collect() == []
        assert SparkStore(other, store).examine("shop.v").findings == ()
        assert state_of(other) == before
    [(how,), *_] = other.sql("EXPLAIN REFRESH MATERIALIZED VIEW lake.shop.v").collect()
    assert how == "shop.v is refreshed incrementally, by Spark"
    kept = store.table("shop.v").definition.options.as_dict()
    for name, (ours, _, _) in _DEPENDING.items():
        assert kept[f"view.setting.spark.sql.{name}"] == ours


@pytest.mark.deep
def test_names_are_in_upper_and_lower_case_where_they_were(session: SparkSession, store: Store) -> None:
    """GROUP BY meant another column to each refresh, since all of them ignored the case of names."""
    exact = of(session, {"caseSensitive": "true"})
    exact.sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, kind STRING)")
    exact.sql("INSERT INTO lake.shop.t VALUES (1, 'a'), (2, 'A')")
    query = "SELECT upper(kind) AS KIND, count(*) AS n FROM lake.shop.t GROUP BY KIND"
    assert shown(session, query) != shown(exact, query) == ["Row(KIND='A', n=2)"]
    exact.sql(f"CREATE MATERIALIZED VIEW lake.shop.v AS {query}")
    exact.sql("INSERT INTO lake.shop.t VALUES (3, 'a')")
    session.sql("REFRESH MATERIALIZED VIEW lake.shop.v")
    assert shown(session, "SELECT * FROM lake.shop.v") == ["Row(KIND='A', n=3)"]
    [(how,), *_] = session.sql("EXPLAIN REFRESH MATERIALIZED VIEW lake.shop.v").collect()
    assert how.endswith("it runs with spark.sql.caseSensitive = true, by which its text has another meaning")


@pytest.mark.deep
def test_a_refresh_that_fails_leaves_the_session_as_it_is(session: SparkSession, store: Store) -> None:
    session.sql("CREATE TABLE lake.shop.t (id BIGINT PRIMARY KEY, word STRING)")
    session.sql("CREATE MATERIALIZED VIEW lake.shop.v AS SELECT id, CAST(word AS INT) AS n FROM lake.shop.t")
    session.sql("INSERT INTO lake.shop.t VALUES (1, 'x')")
    lenient = of(session, {"ansi.enabled": "false", "session.timeZone": "Asia/Tokyo"})
    before = state_of(lenient)
    with pytest.raises(AnalysisException, match=r"view-query.*cannot be cast"):
        lenient.sql("REFRESH MATERIALIZED VIEW lake.shop.v")
    with pytest.raises(InvalidRequest, match="cannot be cast"):
        SparkStore(lenient, store).refresh("shop.v")
    assert state_of(lenient) == before
    assert lenient.sql("SELECT CAST('x' AS INT)").collect() == [(None,)]


@pytest.mark.deep
def test_what_a_view_keeps(session: SparkSession) -> None:
    """The settings on which values depend, and neither secrets nor what suits one machine."""
    values = {
        "spark.sql.storeAssignmentPolicy": "LEGACY",
        "spark.sql.caseSensitive": "true",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.legacy.followThreeValuedLogicInArrayExists": "false",
        "spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled": "true",
    }
    others = {
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.autoBroadcastJoinThreshold": "5g",
        "spark.sql.optimizer.excludedRules": "",
        "spark.sql.catalog.lake.token-file": "/run/secrets/token",
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.files.ignoreMissingFiles": "true",
    }
    made = of(session, {})
    for name, value in {**values, **others}.items():
        made.conf.set(name, value)
    kept = view_settings(made)
    assert kept == kept | values
    assert {"spark.sql.session.timeZone", "spark.sql.ansi.enabled"} < kept.keys()
    assert not kept.keys() & others.keys()
    found = in_view_session(made, {"spark.sql.ansi.enabled": "false"}, lambda view: dict(view.conf.getAll))
    assert found["spark.sql.shuffle.partitions"] == "7"
    assert found["spark.sql.ansi.enabled"] == "false"
    assert found["spark.sql.files.ignoreMissingFiles"] == "false"
    assert not found.keys() & (values.keys() - {"spark.sql.caseSensitive"})
    for name, value in (("spark.sql.of.another.version", "1"), ("spark.sql.ansi.enabled", "perhaps")):
        with pytest.raises(InvalidRequest, match=rf"view\.setting\.{name}.*cannot be set") as caught:
            in_view_session(made, {name: value}, lambda _: None)
        assert caught.value.code == "view-setting"

"""What Spark runs, and that polars returns what Spark does. One Spark session serves all of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from filestore.errors import TableStoreError
from tablestore import Store
from tablestore.shell.engines import Engine
from tablestore.shell.refusals import BEGINNINGS
from tablestore.shell.session import Session
from tablestore.shell.spark_engine import SparkEngine, SparkPlace
from tests.cli.conftest import Run
from tests.cli.sql_cases import COLUMNS, FOR_POLARS, FOR_SPARK, MISTYPED, NOT_MISTYPED, ROWS
from tests.depth import Depth

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def sessions(spark: SparkSession, store: Store) -> Iterator[dict[str, Session]]:
    """A session that only uses polars, and one that only uses Spark."""
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options={"bucket": "2", "log.system": "none"})
    table.write(ROWS)

    def start(database: str | None) -> SparkEngine:
        return SparkEngine(SparkPlace("lake", store.target), database)

    with (
        Session(store, start, database="shop", engine=Engine.POLARS) as polars,
        Session(store, start, database="shop", engine=Engine.SPARK) as of_spark,
    ):
        yield {"polars": polars, "spark": of_spark}


def rows(session: Session, statement: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Names and types of the columns, and the rows as texts, so that NaN equals itself; in order if there is one."""
    result = session.run(statement)
    assert result.schema is not None
    found = [repr(list(row.values())) for part in result.batches for row in part.to_pylist()]
    types = [(field.name, str(field.type)) for field in result.schema]
    return types, found if "ORDER BY" in statement else sorted(found)


@pytest.mark.deep
def test_polars_returns_what_spark_returns(sessions: dict[str, Session], depth: Depth) -> None:
    for statement in depth.sample(FOR_POLARS, 8):
        assert rows(sessions["polars"], statement) == rows(sessions["spark"], statement), statement


def refused(session: Session, statement: str) -> str | None:
    """The code with which a statement is refused before Spark starts; None: it is not."""
    try:
        session._refuse(statement)
    except TableStoreError as error:
        return error.code
    return None


def refused_by_spark(spark: SparkSession, statement: str) -> bool:
    try:
        spark.sql(statement)
    except (PySparkException, Py4JError):
        return True
    return False


ITEMS = ("{c}", "{c} + 1 AS {n}", "upper({c})", "count({c}) AS {n}", "t.{c}", "place.{n}", "CAST({c} AS STRING)", "*")
WHERES = ("", "WHERE {c} = {n}", "WHERE {c} IS NULL", "WHERE {c} IN (1, 2)", "WHERE {c} LIKE 'a'")
REST = ("", "ORDER BY {c}", "GROUP BY {c}", "GROUP BY {c} HAVING {n} > 1", "GROUP BY ALL ORDER BY {n} DESC")
NAMES = ("id", "n", "s", "nmae", "lat", "name", "more", "current_date", "user", "total", "tags", "B", "_metadata")


def random_statement(chance: random.Random) -> str:
    def written(pattern: str) -> str:
        return pattern.format(c=chance.choice(NAMES), n=chance.choice(NAMES))

    items = ", ".join(written(chance.choice(ITEMS)) for _ in range(chance.randint(1, 3)))
    source = chance.choice(
        ("t", "t", "shop.t AS t", "t JOIN u ON t.id = u.{c}", "t NATURAL JOIN u", "t JOIN u USING (id)")
    )
    return f"SELECT {items} FROM {written(source)} {written(chance.choice(WHERES))} {written(chance.choice(REST))}"


def test_what_is_refused_before_spark_starts_spark_refuses(
    sessions: dict[str, Session], store: Store, depth: Depth
) -> None:
    store.create_table("shop.u", "id BIGINT, total DOUBLE", primary_key=["id"], options={"log.system": "none"})
    session = sessions["spark"]
    session.run("SELECT 1")
    assert session._spark is not None
    spark = session._spark._session
    for statement, code in MISTYPED.items():
        assert refused(session, statement) == code, statement
        assert refused_by_spark(spark, statement), statement
    chance = random.Random(1)
    drawn = [random_statement(chance) for _ in range(depth.times(150, deep=1500))]
    found = [refused(session, statement) for statement in drawn]
    assert 0.1 < sum(code is not None for code in found) / len(found) < 0.9
    for statement in (*NOT_MISTYPED, *FOR_POLARS, *FOR_SPARK, *drawn):
        if refused(session, statement):
            assert refused_by_spark(spark, statement), statement


def test_all_words_with_which_statements_begin_are_known(spark: SparkSession) -> None:
    assert spark._jvm is not None
    parser = spark._jvm.org.apache.spark.sql.catalyst.parser.SqlBaseParser(None)
    grammar, words = parser.getATN(), set()
    states = get_field(grammar, "ruleToStartState")
    for rule in ("singleStatement", "compoundOrSingleStatement"):
        tokens = grammar.nextTokens(states[list(parser.getRuleNames()).index(rule)])
        words |= {parser.getVocabulary().getSymbolicName(token) for token in tokens.toList()}
    known = {word for word in words if word.isalpha()}
    assert {"SELECT", "MERGE", "BEGIN"} < known
    assert known - BEGINNINGS - {"IDENTIFIER"} == set()


def error_of(session: Session, statement: str) -> tuple[str, str]:
    with pytest.raises(TableStoreError) as raised:
        list(session.run(statement).batches)
    return raised.value.code, raised.value.message


def test_errors_of_spark_are_one_sentence(sessions: dict[str, Session]) -> None:
    session = sessions["spark"]
    session.run("SELECT 1")  # before Spark runs, some errors are found without it
    code, message = error_of(session, "SELECT * FROM nothere")
    assert code == "TABLE_OR_VIEW_NOT_FOUND"
    assert "`nothere` cannot be found" in message
    code, message = error_of(session, "SELECT none FROM t")
    assert code.startswith("UNRESOLVED_COLUMN")
    code, message = error_of(session, "SELEC 1")
    assert (code, message.startswith("Syntax error")) == ("PARSE_SYNTAX_ERROR", True)
    assert error_of(session, "CALL lake.sys.create_tag('shop.none', 'x')")[0] == "table-not-found"
    assert error_of(session, "SELECT 1 / 0")[0] == "DIVIDE_BY_ZERO"
    code, _ = error_of(session, "SELECT sum(id) FROM (SELECT 9223372036854775807 AS id UNION ALL SELECT 1 AS id)")
    assert code == "ARITHMETIC_OVERFLOW"
    for statement in ("SELECT none FROM t", "SELECT 1 / 0", "SELECT * FROM nothere"):
        message = error_of(session, statement)[1]
        assert "JVM" not in message
        assert "\n" not in message
        assert "\tat " not in message


def test_the_command_runs_what_spark_has_to_run(run: Run, spark: SparkSession, store: Store) -> None:
    script = """
        CREATE TABLE shop.orders (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED);
        INSERT INTO lake.shop.orders VALUES (1, 'a;b'), (2, 'c'); -- ; two
        CREATE VIEW lake.shop.second AS SELECT id, upper(v) AS v FROM orders WHERE id = 2;
        SELECT * FROM second;
        SELECT id FROM orders WHERE id = 1;
    """
    done = run("sql", "--database", "shop", "--file", "-", stdin=script)
    assert done.exit_code == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [["id", "v"], ["2", "C"], ["id"], ["1"]]
    assert done.stderr.count("Spark starts: ") == 1
    assert done.stderr.splitlines()[-2:] == ["Spark: 1 row", "polars: 1 row"]

    odd = "INTERVAL '1' DAY AS i, map('a', 1) AS m, array(struct(1.50 AS p)) AS s, NULL AS n, X'00' AS r, 1 AS i"
    done = run("sql", "--format", "json", f"SELECT {odd}, TIMESTAMP '2026-01-01 12:00:00' AS ts")
    assert json.loads(done.stdout) == {
        "i": "INTERVAL '1' DAY",
        "m": [{"key": "a", "value": 1}],
        "s": [{"p": "1.50"}],
        "n": None,
        "r": "AA==",
        "i_2": 1,
        "ts": "2026-01-01T12:00:00.000000Z",
    }
    shown = run("sql", "SELECT id, id FROM range(2) WHERE id > 5").stdout
    assert shown.split() == ["id", "id"]

    many = run("sql", "-f", "json", "SELECT id FROM range(0, 3000, 1, 3) ORDER BY id")
    assert [json.loads(line)["id"] for line in many.stdout.splitlines()] == list(range(3000))
    cut = run("sql", "-n", 5, "SELECT id FROM range(3000)")
    assert len(cut.stdout.splitlines()) == 6
    assert cut.stderr.endswith("Spark: 5 rows; there are more, which --rows prints\n")

    failed = run("sql", "-d", "shop", "INSERT INTO orders VALUES (3, 'd'); SELEC; INSERT INTO orders VALUES (4, 'e')")
    assert failed.exit_code == 1
    assert failed.stderr.splitlines()[-1].startswith("statement 2 of 3: error[PARSE_SYNTAX_ERROR]: Syntax error")
    assert sorted(store.table("shop.orders").scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_settings_and_temporary_views_make_all_statements_sparks(run: Run, spark: SparkSession, store: Store) -> None:
    store.create_table("shop.orders", "id BIGINT")
    hidden = "CREATE TEMPORARY VIEW orders AS SELECT 7 AS id; SELECT * FROM orders"
    done = run("sql", "-d", "shop", hidden)
    assert done.stdout.split() == ["id", "7"], done.stderr
    piped = "USE shop;\nSELECT 1;\nUSE lake.shop;\n\\d\nSELECT id FROM orders\n"
    talk = run("sql", stdin=piped)
    assert talk.exit_code == 0, talk.stderr
    assert talk.stderr.endswith("Spark: 0 rows\n")
    assert "orders" in talk.stdout


def test_spark_follows_the_current_database(sessions: dict[str, Session]) -> None:
    session = sessions["spark"]
    session.store.create_database("other")
    session.run("USE lake.other")
    assert session.database == "other"
    session.run("USE spark_catalog.default")
    assert session.database is None

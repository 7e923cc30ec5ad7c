"""Every shape of an INSERT from a topic of changes leads to the rows of a simple model, or is refused."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from pyspark.errors import PySparkException

from tablestore import Store
from tests.depth import Depth
from tests.servers.kafka import KafkaBroker
from tests.spark.sql.conftest import Sql
from tests.spark.sql.test_insertions_of_changes import DEBEZIUM, KEY, UPSERT, declare
from tests.topics import Topics

Found = tuple[int, int, str]
Message = tuple[bytes, bytes | None]

COLUMNS = "id BIGINT NOT NULL, n BIGINT{0}, name STRING{0}"
CANAL = "'connector' = 'kafka', 'value.format' = 'canal-json'"


@dataclass(frozen=True)
class Change:
    """What happens to the row of a key; None is no row."""

    number: int
    before: Found | None
    after: Found | None

    def upsert(self) -> Message:
        return self._key(), None if self.after is None else json.dumps(_fields(self.after)).encode()

    def debezium(self, whole: bool = True) -> Message:
        before = None if self.before is None else _fields(self.before)
        if not whole and before is not None:
            before = None if self.after else {"id": self.number}  # as PostgreSQL without REPLICA IDENTITY FULL
        op = "c" if self.before is None else "d" if self.after is None else "u"
        after = None if self.after is None else _fields(self.after)
        return self._key(), json.dumps({"before": before, "after": after, "op": op}).encode()

    def canal(self) -> Message:
        kind = "INSERT" if self.before is None else "DELETE" if self.after is None else "UPDATE"
        row, old = _fields(self.after or self.before or (0, 0, "")), None
        if self.before and self.after:
            old = [{name: value for name, value in _fields(self.before).items() if row[name] != value}]
        return self._key(), json.dumps({"data": [row], "old": old, "type": kind}).encode()

    def _key(self) -> bytes:
        return json.dumps({"id": self.number}).encode()


def _fields(row: Found) -> dict[str, object]:
    return dict(zip(("id", "n", "name"), row, strict=True))


@dataclass
class Rows:
    """The rows of a topic, and the keys that it ever had."""

    now: dict[int, Found] = field(default_factory=dict)
    ever: set[int] = field(default_factory=set)
    count: int = 0

    def changes(self, chance: random.Random, count: int) -> list[Change]:
        return [self._change(chance.randrange(7), chance.random() < 0.3) for _ in range(count)]

    def _change(self, number: int, deletes: bool) -> Change:
        self.count += 1
        before = self.now.pop(number, None)
        after = None if deletes and before else (number, self.count, f"name {self.count % 5}")
        if after:
            self.now[number] = after
        self.ever.add(number)
        return Change(number, before, after)


@dataclass(frozen=True)
class Source:
    """A topic: its declaration, how it says a change, and whether its deletes have whole rows."""

    columns: str
    options: str
    message: Callable[[Change], Message]
    whole: bool = True

    @property
    def keyed(self) -> bool:
        return self.columns.endswith(KEY)


STRICT, LOOSE = COLUMNS.format(" NOT NULL"), COLUMNS.format("")
SOURCES = {
    "upserts": Source(STRICT + KEY, UPSERT, Change.upsert, whole=False),
    "debezium": Source(STRICT + KEY, DEBEZIUM, Change.debezium),
    "debezium of keys": Source(LOOSE + KEY, DEBEZIUM, lambda c: c.debezium(whole=False), whole=False),
    "canal": Source(STRICT + KEY, CANAL, Change.canal),
    "debezium without a key": Source(STRICT, DEBEZIUM, Change.debezium),
    "canal without a key": Source(LOOSE, CANAL, Change.canal),
}


@dataclass(frozen=True)
class Shape:
    """A query of a topic ``{0}``, the rows that it has, and whether it copies the topic's key."""

    query: str
    rows: Callable[[list[Found]], Iterable[Found]] = list
    copies: bool = False


def _groups(rows: list[Found]) -> list[Found]:
    keys = {number % 3 for number, *_ in rows}
    members = [[row for row in rows if row[0] % 3 == key] for key in sorted(keys)]
    return [(own[0][0] % 3, max(n for _, n, _ in own), max(name for *_, name in own)) for own in members]


SHAPES = {
    "star": Shape("INSERT INTO {1} SELECT * FROM {0}", copies=True),
    "where": Shape(
        "INSERT INTO {1} SELECT id, n, name FROM {0} WHERE n % 2 = 0",
        lambda rows: [row for row in rows if row[1] % 2 == 0],
        copies=True,
    ),
    "computed": Shape(
        "INSERT INTO {1} SELECT id, n, upper(x) FROM (SELECT id, n + 1 AS n, name AS x FROM {0}) WHERE id > 1",
        lambda rows: [(number, n + 1, name.upper()) for number, n, name in rows if number > 1],
        copies=True,
    ),
    "list": Shape("INSERT INTO {1} (name, id, n) SELECT name, id, n FROM {0}", copies=True),
    "cast": Shape("INSERT INTO {1} SELECT CAST(id AS INT) AS id, n, name FROM {0}", copies=True),
    "try_cast": Shape("INSERT INTO {1} SELECT TRY_CAST(id AS INT) AS id, n, name FROM {0}"),
    "kinds": Shape("INSERT INTO {1} SELECT id, n, name FROM {0} WHERE _kind IN ('+I', '+U')"),
    "sum": Shape("INSERT INTO {1} SELECT id + 0 AS id, n, name FROM {0}"),
    "other key": Shape(
        "INSERT INTO {1} SELECT n AS id, id AS n, name FROM {0}", lambda rows: [(n, number, x) for number, n, x in rows]
    ),
    "groups": Shape("INSERT INTO {1} SELECT id % 3 AS id, max(n) AS n, max(name) AS name FROM {0} GROUP BY 1", _groups),
    "join": Shape("INSERT INTO {1} SELECT a.id, a.n, b.name FROM {0} a JOIN {0} b ON a.id = b.id"),
    "limit": Shape("INSERT INTO {1} SELECT * FROM {0} ORDER BY id LIMIT 2", lambda rows: sorted(rows)[:2]),
    "union": Shape("INSERT INTO {1} SELECT * FROM {0} WHERE id < 3 UNION ALL SELECT * FROM {0} WHERE id >= 3"),
    "distinct": Shape("INSERT INTO {1} SELECT DISTINCT * FROM {0}"),
    "window": Shape("INSERT INTO {1} SELECT id, max(n) OVER (PARTITION BY id) AS n, name FROM {0}"),
    "with": Shape("INSERT INTO {1} WITH d AS (SELECT * FROM {0}) SELECT * FROM d"),
    "overwrite": Shape("INSERT OVERWRITE {1} SELECT * FROM {0}"),
    "merge": Shape(
        "MERGE INTO {1} t USING {0} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "merge of columns": Shape(
        "MERGE INTO {1} t USING {0} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n, name = s.name "
        "WHEN NOT MATCHED AND s.n > 0 THEN INSERT *"
    ),
}


@dataclass(frozen=True)
class Target:
    """A table: what follows its columns, whether it removes rows, and what it makes of a stored and a new row."""

    more: str
    removes: bool = False
    merged: Callable[[Found, Found], Found] = lambda _, new: new
    ordered: bool = False
    replaceable: bool = True


def _later(stored: Found, new: Found) -> Found:
    return new if new[1] >= stored[1] else stored


def _options(options: str) -> str:
    return f", PRIMARY KEY (id)) TBLPROPERTIES ('log.system' = 'none', {options})"


TARGETS = {
    "rows": Target(_options("'bucket' = '2'"), removes=True),
    "sequence": Target(_options("'sequence.field' = 'n'"), removes=True, merged=_later, ordered=True),
    "ignore-delete": Target(_options("'ignore-delete' = 'true'")),
    "first-row": Target(_options("'merge-engine' = 'first-row'"), merged=lambda stored, _: stored),
    "sums": Target(
        _options("'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum'"),
        merged=lambda stored, new: (stored[0], stored[1] + new[1], new[2]),
    ),
    "topic of upserts": Target(UPSERT, removes=True, replaceable=False),
    "topic of changes": Target(DEBEZIUM, replaceable=False),
}
CASES = [
    case
    for case in itertools.product(SOURCES, SHAPES, TARGETS)
    if TARGETS[case[2]].replaceable or case[1] != "overwrite"
    if case[2] == "rows" or not case[1].startswith("merge")
]
"""A topic is not overwritten, and only a table whose rows are replaced has such a MERGE."""


class Insertion:
    """One statement, repeated as the topic goes on, with the rows that its table should have."""

    def __init__(self, source: Source, shape: Shape, target: Target) -> None:
        self.source, self.shape, self.target = source, shape, target
        self.applies = shape.copies and target.removes
        self.stored: dict[int, Found] = {}

    def error(self, rows: Rows) -> str | None:
        if not self.source.keyed and "_kind" not in self.shape.query:
            return "changes-needed"
        gone = self.stored.keys() & (rows.ever - rows.now.keys())
        lacks = self.applies and self.target.ordered and not self.source.whole and gone
        return "delete-without-sequence" if lacks else None

    def insert(self, rows: Rows) -> None:
        new = {row[0]: row for row in self.shape.rows(list(rows.now.values()))}
        if "OVERWRITE" in self.shape.query:
            self.stored = {}
        if self.applies:
            for number in rows.ever - new.keys():
                self.stored.pop(number, None)
        for number, found in new.items():
            stored = self.stored.get(number)
            self.stored[number] = found if stored is None else self.target.merged(stored, found)


def test_insertions_from_topics(store: Store, kafka_broker: KafkaBroker, sql: Sql, depth: Depth) -> None:
    """Other shapes than the simplest ended with an internal error of Spark, and some without a key lost rows."""
    chance = random.Random(random.randrange(2**32) if depth is Depth.DEEP else 37)
    cases = CASES if depth is Depth.DEEP else chance.sample(CASES, len(CASES))
    chosen = [case for case in depth.sample(cases, 4, deep=16) if not _reads_messages(case)]
    topics = Topics(store, kafka_broker)
    tables = {
        name: declare(sql, store, topics, name.replace(" ", "_"), source.columns, source.options)
        for name, source in SOURCES.items()
        if any(case[0] == name for case in chosen)
    }
    insertions = []
    for number, case in enumerate(chosen):
        target = TARGETS[case[2]]
        if target.replaceable:
            sql(f"CREATE TABLE lake.shop.target_{number} ({STRICT}{target.more}")
        else:
            declare(sql, store, topics, f"target_{number}", STRICT + KEY, target.more)
        insertions.append(Insertion(SOURCES[case[0]], SHAPES[case[1]], target))
    rows = Rows()
    for _ in range(2):
        changes = rows.changes(chance, 16)
        for name, table in tables.items():
            topics.produce(table, [SOURCES[name].message(change) for change in changes])
        for number, (case, insertion) in enumerate(zip(chosen, insertions, strict=True)):
            source, target = f"lake.shop.{case[0].replace(' ', '_')}", f"lake.shop.target_{number}"
            statement = insertion.shape.query.format(source, target)
            if error := insertion.error(rows):
                with pytest.raises(PySparkException, match=error):
                    sql(statement)
            else:
                sql(statement)
                insertion.insert(rows)
            assert sql(f"SELECT id, n, name FROM {target}") == sorted(insertion.stored.values(), key=repr), case


def _reads_messages(case: tuple[str, str, str]) -> bool:
    """Returns whether a case reads what happened to each key, and not its rows."""
    return case[1] == "kinds" and not SOURCES[case[0]].keyed

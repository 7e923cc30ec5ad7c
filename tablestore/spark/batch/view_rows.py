"""Computes the rows of a view's refresh as DataFrames: what changes affect, and how it differs from the stored rows.

The query itself runs as its text, over tables in the place of its own
(`tablestore.views.plan.refresh_script`). So the values of the result are exactly Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from filestore.errors import Unsupported
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN
from tablestore.spark.batch.columns import spark_type
from tablestore.spark.batch.comparing import same
from tablestore.spark.batch.plan_leaves import other_relation
from tablestore.views.engines.query_work import QueryWork
from tablestore.views.plan.refresh_script import check_script, refresh_script
from tablestore.views.plan.script import OWN, Changed, Made, Matching, Query, Rows, Sampled, Script
from tablestore.views.plan.view_plan import Incremental

__all__ = ["ALIKE", "NEW", "STORED", "TableReader", "ViewRows", "counted_alike", "paired"]

_IN_PLAN = 5_000
"""The most keys that are a part of a plan."""
_SENT_TO_ALL = 100_000
"""The most keys that are sent to each task which searches rows of them."""
NEW, STORED = f"{OWN}new", f"{OWN}stored"
ALIKE = f"{OWN}alike"


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads tables of the store.

    Attributes:
        rows: Returns the rows of a version of a table.
        changes: Returns the difference of two versions of a table, with ``rowkind``.
    """

    rows: Callable[[str, int], DataFrame]
    changes: Callable[[str, int, int], DataFrame]


@dataclass
class ViewRows:
    """The rows of one refresh. It is a context, at whose end Spark forgets what it has kept in memory.

    Attributes:
        spark: A session of its own, with the settings of the query.
        read: Reads tables in that session.
        work: The work.
    """

    spark: SparkSession
    read: TableReader
    work: QueryWork
    _kept: ExitStack = field(default_factory=ExitStack)
    _read: dict[tuple[str, int], DataFrame] = field(default_factory=dict)
    _views: dict[int, tuple[str, DataFrame]] = field(default_factory=dict)
    _changed: dict[str, DataFrame] = field(default_factory=dict)

    def __enter__(self) -> ViewRows:
        return self

    def __exit__(self, *error: object) -> None:
        self._kept.close()

    def result(self) -> DataFrame:
        """Returns all rows of the query's result."""
        return self._query([self._rows(use.name, self.work.until[use.name]) for use in self.work.query.uses])

    def stored(self) -> DataFrame:
        """Returns the rows that the view has."""
        return self.read.rows(self.work.output, self.work.version)

    def differing(self) -> DataFrame:
        """Returns the rows of the result that differ from the stored ones, and with ``-D`` the rows to delete.

        Rows of the result that have one key are all there: whoever writes them refuses them.
        """
        work, plan = self.work, self.work.plan
        if work.compares:
            return _differences(self.result(), self.stored(), plan.key, repeated=True)
        assert isinstance(plan, Incremental)
        assert work.since is not None
        script = refresh_script(plan, work.since, work.until)
        frames = self._frames(script)
        stored = _matching(self.stored(), plan.key, frames[script.keys])
        return _differences(_as_stored(frames[script.rows]), stored, plan.key, repeated=plan.given)

    def drawn(self) -> tuple[DataFrame, DataFrame]:
        """Returns a few rows of the result, computed anew, and the stored rows of their keys."""
        work = self.work
        assert isinstance(work.plan, Incremental)
        script = check_script(work.plan, work.until, Rows(work.output, work.version))
        frames = self._frames(script)
        return _as_stored(frames[script.rows]), frames[script.stored]

    def _frames(self, script: Script) -> Mapping[str, DataFrame]:
        """Returns the relations of a script, each of which has its name in the session."""
        frames: dict[str, DataFrame] = {}
        for name, made in script.relations.items():
            frames[name] = self._made(made)
            frames[name].createOrReplaceTempView(name)
        return frames

    def _made(self, made: Made) -> DataFrame:
        match made:
            case Rows():
                return self._rows(made.table, made.version)
            case Sampled():
                return self._drawn(made.rows)
            case Changed():
                return self._changes(made)
            case Matching():
                return self.spark.sql(made.text(self._view(self._rows(made.rows.table, made.rows.version))))
            case Query():
                found = self.spark.sql(made.text)
                return self._kept_keys(found) if made.is_keys else found

    def _changes(self, what: Changed) -> DataFrame:
        assert self.work.since is not None
        table = what.table
        if table not in self._changed:
            images = self.read.changes(table, self.work.since[table], self.work.until[table]).persist()
            self._kept.callback(images.unpersist)
            self._changed[table] = images
        kinds = ("+U", "+I") if what.new else ("-U", "-D")
        return self._changed[table].where(F.col("rowkind").isin(*kinds)).drop("rowkind")

    def _drawn(self, rows: Rows) -> DataFrame:
        schema = self.work.state(rows.table, rows.version).definition.schema
        return self.spark.createDataFrame(self.work.drawn_rows(rows, schema.names), spark_type(schema))

    def _query(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Runs the query over other tables, one for each place at which it names a table.

        Raises:
            Unsupported: ``view-query``: refreshes would not keep up with its result.
        """
        query = self.spark.sql(self.work.query.with_tables([self._view(frame) for frame in frames]))
        if (why := _obstacle(query)) is not None:
            raise Unsupported(f"the query cannot be that of a materialized view: {why}", code="view-query")
        return _as_stored(query)

    def _rows(self, table: str, version: int) -> DataFrame:
        """Returns the rows of a version, which Spark has to find only once."""
        if (table, version) not in self._read:
            self._read[table, version] = self.read.rows(table, version)
        return self._read[table, version]

    def _view(self, frame: DataFrame) -> str:
        """Gives a DataFrame a name in the session."""
        if id(frame) not in self._views:
            name = f"{OWN}v{len(self._views)}"
            frame.createOrReplaceTempView(name)
            self._views[id(frame)] = name, frame
        return self._views[id(frame)][0]

    def _kept_keys(self, frame: DataFrame) -> DataFrame:
        """Computes keys once. Spark knows how many they are before it plans joins with them.

        Few keys become a part of each plan that uses them: Spark has no job to send them to the tasks. They pass
        through Java as they are, which has objects for values of all types.
        """
        kept = frame.persist()
        self._kept.callback(kept.unpersist)
        found = kept._jdf.limit(_IN_PLAN + 1).collectAsList()
        if found.size() <= _IN_PLAN:
            own = self.spark._jsparkSession.createDataFrame(found, kept._jdf.schema())
            return DataFrame(own, self.spark).hint("broadcast")
        return kept.hint("broadcast") if kept.count() <= _SENT_TO_ALL else kept


def _obstacle(query: DataFrame) -> str | None:
    """Says why refreshes of a query over DataFrames of ours would not keep up with its result; None if they would."""
    if not query._jdf.queryExecution().analyzed().deterministic():
        return "it has a function that gives another value each time"
    if (other := other_relation(query, OWN)) is not None:
        return (
            f"it reads {other}, which it does not name as a table, so that nobody would know when that changes. Write "
            "the tables themselves in the query, not IDENTIFIER, and no views or functions that read tables"
        )
    return None


def _as_stored(rows: DataFrame) -> DataFrame:
    """Takes collations from columns: tables keep none, and Spark compares no string of one with a stored string."""
    found = {column.name: _without_collation(column.dataType) for column in rows.schema}
    if all(found[column.name] == column.dataType for column in rows.schema):
        return rows
    return rows.select(*(F.col(quoted(name)).cast(kind).alias(name) for name, kind in found.items()))


def _without_collation(kind: DataType) -> DataType:
    match kind:
        case StringType() if type(kind) is StringType:
            return StringType()
        case ArrayType():
            return ArrayType(_without_collation(kind.elementType), kind.containsNull)
        case MapType():
            pair = (_without_collation(kind.keyType), _without_collation(kind.valueType))
            return MapType(*pair, kind.valueContainsNull)
        case StructType():
            fields = ((f.name, _without_collation(f.dataType), f.nullable, f.metadata) for f in kind)
            return StructType([StructField(*field) for field in fields])
    return kind


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _matching(rows: DataFrame, columns: Sequence[str], keys: DataFrame) -> DataFrame:
    """Returns the rows whose columns are among the keys; the columns of both are in the same order. Nulls are equal."""
    names = [f"{OWN}match_{number}" for number in range(len(columns))]
    pairs = zip(_columns(columns), _columns(names), strict=True)
    return rows.join(keys.toDF(*names), reduce(and_, (own.eqNullSafe(key) for own, key in pairs)), "left_semi")


def counted_alike(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Adds to each row the number `ALIKE` of rows that have its key."""
    return rows.withColumn(ALIKE, F.count("*").over(Window.partitionBy(*_columns(key))))


def paired(new: DataFrame, stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns the rows of a result as a struct `NEW`, each with the stored row of its key as a struct `STORED`.

    What the result has beside the columns of the stored rows is beside them.
    """
    columns = _columns(stored.columns)
    extra = [F.col(quoted(name)) for name in new.columns if name not in stored.columns]
    left = new.select(F.struct(*columns).alias(NEW), *extra)
    right = stored.select(F.struct(*columns).alias(STORED))
    equal = [F.col(NEW).getField(name) == F.col(STORED).getField(name) for name in key]
    return left.join(right, reduce(and_, equal), "full_outer")


def _differences(new: DataFrame, stored: DataFrame, key: Sequence[str], *, repeated: bool) -> DataFrame:
    """Returns the rows that make the stored rows of some keys the new ones, with ``_kind``.

    Args:
        new: The new rows.
        stored: The stored ones.
        key: The columns of the key.
        repeated: Whether several new rows may have one key: then these are returned even if they are as stored.
    """
    if repeated:
        new = counted_alike(new, key)
    now, before = F.col(NEW), F.col(STORED)
    types = {column.name: column.dataType for column in new.schema}
    equal = [same(now.getField(name), before.getField(name), types[name]) for name in stored.columns]
    differ = reduce(or_, [now.isNull(), before.isNull(), ~reduce(and_, equal)])
    if repeated:
        differ = differ | (F.col(ALIKE) > 1)
    kind = F.when(now.isNull(), "-D").when(before.isNull(), "+I").otherwise("+U")
    rows = paired(new, stored, key).where(differ)
    values = [
        (F.coalesce(now.getField(name), before.getField(name)) if name in key else now.getField(name)).alias(name)
        for name in stored.columns
    ]
    return rows.select(*values, kind.alias(KIND_COLUMN))

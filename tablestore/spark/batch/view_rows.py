"""Computes the rows of a view's refresh as DataFrames: what changes affect, and how it differs from the stored rows.

The query itself runs as its text, over tables in the place of its own: the driving table is restricted to the rows that
matter. So the values of the result are exactly Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from filestore.errors import Unsupported
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN
from tablestore.spark.batch.comparing import same
from tablestore.spark.batch.plan_leaves import other_relation
from tablestore.views.maintained_query import QueryWork
from tablestore.views.view_plan import Form, Incremental

__all__ = ["NEW", "STORED", "TableReader", "ViewRows", "paired"]

_OWN = "_tablestore_"
"""Names of columns and views that begin so are ours."""
_IN_PLAN = 5_000
"""The most keys that are a part of a plan."""
_SENT_TO_ALL = 100_000
"""The most keys that are sent to each task which searches rows of them."""
NEW, STORED = f"{_OWN}new", f"{_OWN}stored"


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads tables of the store.

    Attributes:
        rows: Returns the rows of a version of a table.
        changes: Returns the difference of two versions of a table, with ``rowkind``.
    """

    rows: Callable[[str, int], DataFrame]
    changes: Callable[[str, int, int], DataFrame]


@dataclass(frozen=True, slots=True)
class _Changed:
    """The driving rows that changes affect: their keys, and the rows before and after."""

    keys: DataFrame
    before: DataFrame
    after: DataFrame


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

    def __enter__(self) -> ViewRows:
        return self

    def __exit__(self, *error: object) -> None:
        self._kept.close()

    def result(self) -> DataFrame:
        """Returns all rows of the query's result."""
        return self._query([self._rows(use.name, self.work.until) for use in self.work.query.uses])

    def stored(self) -> DataFrame:
        """Returns the rows that the view has."""
        return self.read.rows(self.work.output, self.work.version)

    def differing(self) -> DataFrame:
        """Returns the rows of the result that differ from the stored ones, and with ``-D`` the rows to delete."""
        plan, since = self.work.plan, self.work.since
        assert isinstance(plan, Incremental)
        assert since is not None
        changed = self._changed(plan, since)
        others = [self._rows(source.table, self.work.until) for source in plan.sources[1:]]
        if plan.form is Form.ROWS:
            affected, new = changed.keys, self._query([changed.after, *others])
        else:
            affected = self._kept_keys(self._groups(plan, changed, since))
            new = _matching(self._query([self._of_groups(plan, affected), *others]), plan.key, affected)
        return _differences(new, _matching(self.stored(), plan.key, affected), plan.key)

    def _changed(self, plan: Incremental, since: Mapping[str, int]) -> _Changed:
        driving, *others = plan.sources
        images = self.read.changes(driving.table, since[driving.table], self.work.until[driving.table]).persist()
        self._kept.callback(images.unpersist)
        own = _keys(images, driving.key)
        moved = [other for other in others if since[other.table] != self.work.until[other.table]]
        if not moved:
            before, after = (images.where(F.col("rowkind").isin(*kinds)) for kinds in (("-U", "-D"), ("+U", "+I")))
            return _Changed(own, before.drop("rowkind"), after.drop("rowkind"))
        changes = {
            other.alias: self._kept_keys(
                _keys(self.read.changes(other.table, since[other.table], self.work.until[other.table]), other.key)
            )
            for other in moved
        }
        found = [self._naming(plan, changes, versions) for versions in (since, self.work.until)]
        keys = self._kept_keys(own.unionAll(found[0]).unionAll(found[1]))
        before, after = (
            _matching(self._rows(driving.table, versions), driving.key, keys) for versions in (since, self.work.until)
        )
        return _Changed(keys, before, after)

    def _naming(self, plan: Incremental, changes: Mapping[str, DataFrame], versions: Mapping[str, int]) -> DataFrame:
        """Returns the keys of driving rows in the result of one version that name changed rows of other tables.

        A row names another one by the columns that have to equal its key. So it is found whether it is joined with that
        row or padded with nulls, and WHERE may be asked: a row that changes is in the result of at least one version.
        """
        driving = plan.sources[0]
        frames = [self._rows(source.table, versions) for source in plan.sources]
        joins, found = [], []
        for number, source in enumerate(plan.sources):
            if (keys := changes.get(source.alias)) is not None:  # they are unique, so a row stays one row
                name = f"{_OWN}changed_{number}"
                own = [f"{_OWN}key_{place}" for place in range(len(source.key))]  # the query may name its keys alone
                pairs = zip(source.equal, own, strict=True)
                equal = [f"{_of(*column)} = {_of(name, key)}" for column, key in pairs]
                view = quoted(self._view(keys.select(*map(quoted, source.key)).toDF(*own)))
                joins.append(f"LEFT JOIN {view} AS {quoted(name)} ON {' AND '.join(equal)}")
                found.append(f"{_of(name, own[0])} IS NOT NULL")
        items = [_of(driving.alias, name) for name in driving.key]
        return self._from(items, frames, "\n".join(joins), " OR ".join(found))

    def _groups(self, plan: Incremental, changed: _Changed, since: Mapping[str, int]) -> DataFrame:
        """Returns the groups of affected rows, before and after."""
        found = []
        for driving, versions in ((changed.before, since), (changed.after, self.work.until)):
            frames = [driving, *(self._rows(source.table, versions) for source in plan.sources[1:])]
            found.append(self._from(self._group_items(plan), frames))
        return found[0].unionAll(found[1]).distinct()

    def _of_groups(self, plan: Incremental, affected: DataFrame) -> DataFrame:
        """Returns the driving rows of some groups; rows of other groups may be among them."""
        driving = plan.sources[0]
        rows, items = self._rows(driving.table, self.work.until), self._group_items(plan)
        names = [f"{_OWN}group_{number}" for number in range(len(plan.groups))]
        named = [f"{item} AS {quoted(name)}" for item, name in zip(items, names, strict=True)]
        if all(group.direct for group in plan.groups):
            listed = ", ".join([f"{quoted(driving.alias)}.*", *named])
            source = f"{quoted(self._view(rows))} AS {quoted(driving.alias)}"
            return _matching(self.spark.sql(f"SELECT {listed} FROM {source}"), names, affected).drop(*names)
        keys = [f"{_of(driving.alias, key)} AS {quoted(f'{_OWN}key_{n}')}" for n, key in enumerate(driving.key)]
        frames = [rows, *(self._rows(source.table, self.work.until) for source in plan.sources[1:])]
        found = _matching(self._from([*keys, *named], frames), names, affected).drop(*names)
        return _matching(rows, driving.key, found.distinct())

    def _group_items(self, plan: Incremental) -> list[str]:
        query = self.work.query
        return [query.text[slice(*group.span)] + (".start" if group.is_window else "") for group in plan.groups]

    def _query(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Runs the query over other tables, one for each place at which it names a table.

        Raises:
            Unsupported: ``view-query``: refreshes would not keep up with its result.
        """
        query = self.spark.sql(self.work.query.with_tables([self._view(frame) for frame in frames]))
        if (why := _obstacle(query)) is not None:
            raise Unsupported(f"the query cannot be that of a materialized view: {why}", code="view-query")
        return _as_stored(query)

    def _from(
        self, items: Sequence[str], frames: Sequence[DataFrame], joined: str = "", condition: str = "true"
    ) -> DataFrame:
        """Selects from the query's FROM and WHERE over other tables."""
        query, names = self.work.query, [self._view(frame) for frame in frames]
        lines = [f"SELECT {', '.join(items)}", "FROM", query.part(query.clauses["from"], names), joined]
        lines.append(f"WHERE ({condition})")
        if "where" in query.clauses:
            lines += ["AND (", query.part(query.clauses["where"], names), ")"]
        return self.spark.sql("\n".join(lines))  # each part may end with a comment

    def _rows(self, table: str, versions: Mapping[str, int]) -> DataFrame:
        """Returns the rows of a version, which Spark has to find only once."""
        version = versions[table]
        if (table, version) not in self._read:
            self._read[table, version] = self.read.rows(table, version)
        return self._read[table, version]

    def _view(self, frame: DataFrame) -> str:
        """Gives a DataFrame a name in the session."""
        if id(frame) not in self._views:
            name = f"{_OWN}{len(self._views)}"
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
    if (other := other_relation(query, _OWN)) is not None:
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


def _of(alias: str, column: str) -> str:
    return f"{quoted(alias)}.{quoted(column)}"


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _keys(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns the keys of changed rows, each once: of an update there are two rows."""
    return changes.where(F.col("rowkind") != "+U").select(*_columns(key))


def _matching(rows: DataFrame, columns: Sequence[str], keys: DataFrame) -> DataFrame:
    """Returns the rows whose columns are among the keys; the columns of both are in the same order. Nulls are equal."""
    names = [f"{_OWN}match_{number}" for number in range(len(columns))]
    pairs = zip(_columns(columns), _columns(names), strict=True)
    return rows.join(keys.toDF(*names), reduce(and_, (own.eqNullSafe(key) for own, key in pairs)), "left_semi")


def paired(new: DataFrame, stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns the rows of a result as a struct `NEW`, each with the stored row of its key as a struct `STORED`."""
    columns = _columns(stored.columns)
    left, right = (rows.select(F.struct(*columns).alias(name)) for rows, name in ((new, NEW), (stored, STORED)))
    equal = [F.col(NEW).getField(name) == F.col(STORED).getField(name) for name in key]
    return left.join(right, reduce(and_, equal), "full_outer")


def _differences(new: DataFrame, stored: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns the rows that make the stored rows of some keys the new ones, with ``_kind``."""
    now, before = F.col(NEW), F.col(STORED)
    types = {column.name: column.dataType for column in new.schema}
    equal = [same(now.getField(name), before.getField(name), types[name]) for name in stored.columns]
    differ = reduce(or_, [now.isNull(), before.isNull(), ~reduce(and_, equal)])
    kind = F.when(now.isNull(), "-D").when(before.isNull(), "+I").otherwise("+U")
    rows = paired(new, stored, key).where(differ)
    values = [
        (F.coalesce(now.getField(name), before.getField(name)) if name in key else now.getField(name)).alias(name)
        for name in stored.columns
    ]
    return rows.select(*values, kind.alias(KIND_COLUMN))

"""`LocalRows`: reads what a local refresh needs of tables: whole columns, changed rows, rows with some values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.types import is_key_type
from filestore.reading.difference import differences
from filestore.reading.scan import plan_scan
from filestore.rows.frames import arrow_table, frame_of, narrowed, polars_schema
from filestore.sorting.runs import local_runs
from tablestore.local_sql.refusal import NotLocalError
from tablestore.reading.searched_rows import rows_of
from tablestore.reading.version_changes import changes_between
from tablestore.views.engines.query_work import QueryWork
from tablestore.views.plan.script import Changed, Matching, Rows, Sampled

__all__ = ["Computed", "LocalRows", "Stored"]

_NEW = pa.array([str(RowKind.UPDATE_AFTER), str(RowKind.INSERT)])
_READ_BYTES = 16 << 20
"""Fewer bytes are read as a whole, without a search for the rows that are wanted."""
_TEXT_BYTES = 24
"""The size of a text before it is read."""


@dataclass(frozen=True, slots=True)
class Computed:
    """Rows that another engine computes.

    Attributes:
        rows: Computes them.
        schema: Their columns.
        size: The bytes that they are expected to take.
    """

    rows: Callable[[], pa.Table]
    schema: pa.Schema
    size: int


Stored = Rows | Changed | Sampled | Matching
"""Rows of tables that a program reads."""


@dataclass
class LocalRows:
    """The rows of tables at the versions of a refresh.

    Attributes:
        work: The work of the refresh.
        most: The bytes of rows that may be read, decoded.
    """

    work: QueryWork
    most: int
    _left: int = field(init=False)
    _states: dict[tuple[str, int], TableState] = field(default_factory=dict)
    _columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of each table that are read in any way: a row in which none of them differs has not changed."""
    _changed: dict[str, list[pa.Table]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = self.most

    def schema(self, what: Stored | Computed) -> pa.Schema:
        """Returns the columns of what can be read: those of the later version, as the query has them."""
        if isinstance(what, Computed):
            return what.schema
        rows = what.rows if isinstance(what, Matching | Sampled) else what
        version = self.work.until.get(rows.table)
        if version is None:  # the view itself
            assert isinstance(rows, Rows)
            version = rows.version
        return self._state(rows.table, version).definition.schema.to_arrow()

    def plan(self, wanted: Iterable[tuple[Stored | Computed, Sequence[str]]]) -> None:
        """Takes all that will be read, with its columns; refuses more than may be read, as far as metadata says."""
        total = 0
        for what, columns in wanted:
            if isinstance(what, Computed):
                total += what.size
                for table, names in self._named():
                    self._note(table, names)
                continue
            if not isinstance(what, Matching | Sampled):  # those that are found are counted
                total += self._size(what, columns)
            table = what.rows.table if isinstance(what, Matching | Sampled) else what.table
            self._note(table, columns)
        if total > self.most:
            raise _too_much(total, self.most)

    def _note(self, table: str, columns: Sequence[str]) -> None:
        self._columns[table] = tuple(dict.fromkeys([*self._columns.get(table, ()), *columns]))

    def _named(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yields for each table the columns that the query names, or more: another engine reads them."""
        names = self.work.query.names
        for table, version in self.work.until.items():
            every = self._state(table, version).definition.schema.names
            yield table, [column for column in every if names is None or column.lower() in names]

    def read(
        self,
        what: Stored | Computed,
        columns: Sequence[str],
        keys: Callable[[Matching], pa.Table | None],
    ) -> Iterator[pa.Table]:
        """Reads rows.

        Args:
            what: The rows. Of `Matching` others may be among them.
            columns: The columns.
            keys: Returns the values that are wanted, in the order of `Matching.columns`; None if they are many. It is
                asked where the rows that have them are found faster than all rows are read.
        """
        match what:
            case Computed():
                found = iter([what.rows().select(columns)])
            case Rows():
                found = self._rows(what, columns, None)
            case Sampled():
                found = iter([self.work.drawn_rows(what.rows, columns)])
            case Changed():
                found = (rows.select(columns) for rows in self._images(what))
            case Matching():
                large = self._size(what.rows, columns) > _READ_BYTES
                found = self._matching(what, columns, keys(what) if large else None)
        for rows in found:
            self._left -= rows.nbytes
            if self._left < 0:
                raise _too_much(self.most - self._left, self.most)
            yield rows

    def _matching(self, what: Matching, columns: Sequence[str], keys: pa.Table | None) -> Iterator[pa.Table]:
        """Reads the rows of which each column alone has a wanted value."""
        where: pl.Expr | None = None
        kinds = polars_schema(self.schema(what))
        for place, name in enumerate(what.columns if keys is not None else ()):  # it may be there twice
            if not is_key_type(self.schema(what).field(name).type):
                continue  # 0.0 and -0.0 are equal
            assert keys is not None
            values = frame_of(pa.table({name: keys.column(place)}))[name].unique()
            fitting = narrowed(values.drop_nulls(), kinds[name]).drop_nulls()  # another one no row has
            one = pl.col(name).is_in(fitting.implode())
            if values.null_count():
                one = one | pl.col(name).is_null()
            where = one if where is None else where & one
        if keys is not None and not keys.num_rows:
            return iter(())
        return self._rows(what.rows, columns, where)

    def _rows(self, what: Rows, columns: Sequence[str], where: pl.Expr | None) -> Iterator[pa.Table]:
        state, table = self._state(what.table, what.version), self.work.tables[what.table]
        if lacking := [name for name in columns if name not in state.definition.schema]:
            raise NotLocalError(f"{what.table} had no column {lacking[0]} yet in version {what.version}")
        schema = _nullable(state.definition.schema.select(columns).to_arrow())
        for frame in rows_of(table.filestore.table_files(state), plan_scan(state, columns, where), where):
            yield arrow_table(frame, schema)

    def _images(self, what: Changed) -> Iterator[pa.Table]:
        """Reads the changed rows of a table, once for both versions."""
        if what.table not in self._changed:
            self._changed[what.table] = list(self._read_changes(what.table))
        for rows in self._changed[what.table]:
            is_new = pc.is_in(rows.column(KIND_COLUMN), _NEW)
            yield rows.filter(is_new if what.new else pc.invert(is_new))

    def _read_changes(self, name: str) -> Iterator[pa.Table]:
        table, (before, after) = self.work.tables[name], self._versions(name)
        wanted = dict.fromkeys([*after.definition.primary_key, *self._columns[name]])
        return changes_between(table.filestore, before, after, tuple(wanted)).images(local_runs)

    def _versions(self, name: str) -> tuple[TableState, TableState]:
        assert self.work.since is not None
        return self._state(name, self.work.since[name]), self._state(name, self.work.until[name])

    def _state(self, name: str, version: int) -> TableState:
        if (name, version) not in self._states:
            self._states[name, version] = self.work.state(name, version)
        return self._states[name, version]

    def size_of(self, table: str, version: int) -> int:
        """Returns the bytes that all rows of a table have in memory, as far as metadata says."""
        rows = Rows(table, version)
        return self._size(rows, self.schema(rows).names)

    def _size(self, what: Rows | Changed, columns: Sequence[str]) -> int:
        """Returns the bytes that rows have in memory, as far as metadata says."""
        schema = self.schema(what)
        if isinstance(what, Rows):
            rows = plan_scan(self._state(what.table, what.version)).rows
        else:
            rows = sum(difference.most_rows for difference in differences(*self._versions(what.table)))
        return rows * sum(_decoded_size(schema.field(name).type) for name in columns)


def _decoded_size(kind: pa.DataType) -> int:
    """Returns the bytes that a value of a type takes in memory, as far as the type says."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # of no fixed size
        return _TEXT_BYTES


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_nullable(True) for one in schema])


def _too_much(size: int, most: int) -> NotLocalError:
    return NotLocalError(
        f"it would read {size / 1e6:.3g} MB of rows at once, and view.local-memory is {most / 1e6:.3g} MB"
    )

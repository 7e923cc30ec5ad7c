"""Computes the rows of views in this process, without Spark: `tablestore.local_sql` over our own readers.

What it does not know to be the same as in Spark it leaves alone (`NotLocalError`), and so it does with more rows than
``view.local-memory`` has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa

from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Schema
from filestore.rows.fitting import place_columns
from tablestore.local_sql.database import Database
from tablestore.local_sql.programs import Program, Read, translated
from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.typed import identifier
from tablestore.views.engines.local_comparison import counted, counted_by_key, differing
from tablestore.views.engines.local_rows import Computed, LocalRows, Stored
from tablestore.views.engines.query_work import QueryWork, RowCounts
from tablestore.views.plan.refresh_script import check_script, refresh_script
from tablestore.views.plan.script import OWN, Changed, Matching, Rows, Sampled, Script
from tablestore.views.plan.view_plan import Incremental, Whole
from tablestore.views.sql.view_settings import in_utc, other_values
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.write_job import TaskOutcome, WriteJob, repeated_key

__all__ = ["LocalQueries", "Relation", "relations_of"]

_MOST_KEYS = 1_000
"""The most keys for which rows are searched: with more, all are read."""
_RESULT, _REACHED = f"{OWN}result", f"{OWN}reached"
_STORED, _CHANGES = f"{OWN}stored", f"{OWN}changes"
_OWN_BYTES = 64 << 20
"""The memory of a query over no rows."""
_MEMORY_TIMES = 2
"""A query may take the memory of the rows that it reads, and as much again; then it uses the disk."""


class LocalQueries:
    """Computes the rows of views in this process."""

    def require(self, work: QueryWork) -> None:
        """Raises `NotLocalError` if a refresh of a view cannot be computed here, whatever its tables have."""
        _require_settings(work)
        scripts, rows = [self._whole(work)], LocalRows(work, 0)
        if isinstance(work.plan, Incremental):  # with changes of all tables
            script = refresh_script(work.plan, dict.fromkeys(work.until, -1), work.until)
            scripts.append(dict(relations_of(script)))
        for relations in scripts:
            *_, last = relations
            _program(work, relations, rows, [last])

    def schema(self, work: QueryWork) -> Schema:
        """Returns the columns of a query's result; raises `NotLocalError`."""
        _require_settings(work)
        program = _program(work, self._whole(work), LocalRows(work, 0), [_RESULT])
        with Database(_OWN_BYTES) as database:
            database.run(program, lambda name, read: ())  # DuckDB, too, may refuse it
        return Schema.from_arrow(program.relations[_RESULT].schema)

    def write(self, work: QueryWork, most: int, job: WriteJob) -> Sequence[TaskOutcome]:
        """Writes the rows of a refresh: all of them, or those that changes reach and that differ from the stored ones.

        Args:
            work: The work.
            most: The bytes of rows that may be read.
            job: The write.

        Raises:
            NotLocalError: they cannot be computed here. Nothing was written.
            InvalidRequest: ``repeated-key``: two rows have the key that the user gave.
        """
        _require_settings(work)
        return self._written(work, most, job, self._parts(work))

    def require_comparison(self, work: QueryWork) -> None:
        """Raises `NotLocalError` if rows that another engine computes cannot be compared here with stored ones."""
        work = replace(work, since=work.since or dict.fromkeys(work.until, -1))  # with changes of all tables
        parts = self._parts_of_rows(work, lambda: pa.table({}), 0)
        _program(work, parts.relations, LocalRows(work, 0), parts.wanted)

    def write_computed(
        self, work: QueryWork, most: int, job: WriteJob, rows: Callable[[], pa.Table]
    ) -> Sequence[TaskOutcome]:
        """Writes what differs between all rows of the result, which another engine computes, and the stored rows.

        If the result is not exact, the last digits of its numbers may be others in each row. Then only rows of keys are
        compared that changes reach, which are found here.

        Args:
            work: The work.
            most: The bytes of rows that may be read, the result among them.
            job: The write.
            rows: Computes the rows, with the columns of the view's table.

        Raises:
            NotLocalError: they cannot be compared here. Nothing was written.
            InvalidRequest: ``repeated-key``: two rows have the key that the user gave.
        """
        size = LocalRows(work, most).size_of(work.output, work.version)
        return self._written(work, most, job, self._parts_of_rows(work, rows, size))

    def _written(self, work: QueryWork, most: int, job: WriteJob, parts: _Parts) -> Sequence[TaskOutcome]:
        with self._computed(work, most, job.table.definition, parts) as (database, schema):
            work.require_tables()
            rows = database.rows(_select(_CHANGES), schema)
            with GivenRows(chain([schema.empty_table()], rows)) as given:  # there is at least one part
                return given(replace(job, skip_unchanged=not work.replaces))

    def compare(self, work: QueryWork, most: int) -> RowCounts:
        """Compares stored rows with the result, all or a few; raises `NotLocalError`."""
        _require_settings(work)
        result, stored, relations = self._compared(work)
        rows = LocalRows(work, most)
        program = _program(work, relations, rows, [result, stored])
        key, schema = work.state(work.output, work.version).definition.primary_key, work.compared()
        counts = (
            counted_by_key(result, stored, schema, key, exact=work.exact) if key else counted(result, stored, schema)
        )
        with self._run(program, relations, rows, most) as database:
            [found] = database.rows(counts, pa.schema([(name, pa.int64()) for name in ("d", "r", "s")]))
        work.require_tables()
        return RowCounts(*(column[0].as_py() for column in found.columns))

    def _compared(self, work: QueryWork) -> tuple[str, str, Mapping[str, Relation]]:
        """Returns the relation with the result, that with the stored rows, and what makes them."""
        stored = Rows(work.output, work.version)
        if not work.samples:
            return _RESULT, _STORED, self._whole(work) | {_STORED: stored}
        assert isinstance(work.plan, Incremental)
        script = check_script(work.plan, work.until, stored)
        return script.rows, script.stored, dict(relations_of(script))

    # ------------------------------------------------------------------------------------------ programs

    @contextmanager
    def _computed(
        self, work: QueryWork, most: int, definition: TableDefinition, parts: _Parts
    ) -> Iterator[tuple[Database, pa.Schema]]:
        """Makes the relation with the rows to write."""
        stored, result, relations = parts.stored, parts.result, parts.relations
        rows = LocalRows(work, most)
        program = _program(work, relations, rows, parts.wanted)
        schema = program.relations[result].schema
        if definition.primary_key and set(place_columns(definition)) - set(definition.primary_key):
            raise NotLocalError("its table has partitions by columns that are not in the key")
        kinds = {column.name: column.type for column in definition.schema.to_arrow()}
        if {one.name: one.type for one in schema} != kinds:
            raise NotLocalError("its columns would have other types")
        with self._run(program, relations, rows, most) as database:
            if definition.primary_key:
                _refuse_repeated(database, result, definition)
            text = _select(result)
            if stored:
                text = differing(result, stored, schema, definition.primary_key, listed=stored == _STORED)
                schema = schema.append(pa.field(KIND_COLUMN, pa.string()))
            database.make(_CHANGES, text)
            yield database, schema

    def _parts(self, work: QueryWork) -> _Parts:
        """Returns what a refresh makes of its query."""
        if work.since is not None:
            script = _script(work)
            return _Parts(script.keys, script.rows, dict(relations_of(script)))
        stored = {_STORED: Rows(work.output, work.version)} if work.compares else {}
        return _Parts(_STORED if stored else None, _RESULT, self._whole(work) | stored)

    def _parts_of_rows(self, work: QueryWork, rows: Callable[[], pa.Table], size: int) -> _Parts:
        """Returns what a refresh makes of all rows of the result."""
        stored = Rows(work.output, work.version)
        result = Computed(rows, work.state(work.output, work.version).definition.schema.to_arrow(), size)
        if isinstance(work.plan, Whole) or work.plan.exact:
            return _Parts(_STORED, _RESULT, {_RESULT: result, _STORED: stored})
        _require_settings(work)
        script = _script(work)
        relations: dict[str, Relation] = {}
        for name, one in relations_of(script):
            relations[name] = one
            if name == script.keys:
                break
        reached = Matching(stored, work.plan.key, script.keys, work.plan.key).text(_RESULT)
        return _Parts(script.keys, _REACHED, relations | {_RESULT: result, _REACHED: reached})

    def _whole(self, work: QueryWork) -> dict[str, Relation]:
        """Returns the relations of the whole query: its tables, and its result."""
        query = work.query
        names = {table: f"{OWN}{number}" for number, table in enumerate(query.tables)}
        tables = {name: Rows(table, work.until[table]) for table, name in names.items()}
        return {**tables, _RESULT: query.with_tables([names[use.name] for use in query.uses])}

    @contextmanager
    def _run(
        self, program: Program, relations: Mapping[str, Relation], rows: LocalRows, most: int
    ) -> Iterator[Database]:
        reads = {name: one for name, one in program.relations.items() if isinstance(one, Read)}
        rows.plan((_table_of(relations[name]), read.columns) for name, read in reads.items())
        with Database(_OWN_BYTES + _MEMORY_TIMES * most) as database:
            keys = partial(_keys, database, program)
            database.run(program, lambda name, read: rows.read(_table_of(relations[name]), read.columns, keys))
            yield database


Relation = Stored | Computed | str
"""Rows that a program reads, or the query that makes them."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The relations that the program of a refresh makes.

    Attributes:
        stored: The relation with the stored rows, or with the keys of some of them; None if the result replaces all.
        result: That with the result, or with its rows of these keys.
        relations: All relations, by name, each behind those that it reads.
    """

    stored: str | None
    result: str
    relations: Mapping[str, Relation]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The relations whose rows are wanted."""
        return (self.result,) if self.stored is None else (self.stored, self.result)


def _script(work: QueryWork) -> Script:
    assert isinstance(work.plan, Incremental)
    assert work.since is not None
    return refresh_script(work.plan, work.since, work.until)


def relations_of(script: Script) -> Iterator[tuple[str, Relation]]:
    """Yields what the program of a refresh reads, and its queries, by name."""
    for name, made in script.relations.items():
        match made:
            case Rows() | Changed() | Sampled():
                yield name, made
            case Matching():
                yield f"{name}_rows", made
                yield name, made.text(f"{name}_rows")
            case _:
                yield name, made.text


def _program(work: QueryWork, relations: Mapping[str, Relation], rows: LocalRows, wanted: Sequence[str]) -> Program:
    """Writes what makes the wanted relations for DuckDB; raises `NotLocalError`."""
    known = {name: one if isinstance(one, str) else rows.schema(one) for name, one in relations.items()}
    return translated(known, wanted, in_utc=in_utc(work.settings))


def _table_of(relation: Relation) -> Stored | Computed:
    assert not isinstance(relation, str)
    return relation


def _require_settings(work: QueryWork) -> None:
    if (other := other_values(work.settings)) is not None:
        raise NotLocalError(f"it runs with {other}")


def _keys(database: Database, program: Program, what: Matching) -> pa.Table | None:
    """Returns the values that rows have to have; None if they are many."""
    kinds = program.relations[what.keys].schema
    schema = pa.schema(
        [(column, kinds.field(value).type) for column, value in zip(what.columns, what.values, strict=True)]
    )
    listed = ", ".join(identifier(value) for value in what.values)
    text = f"SELECT DISTINCT {listed} FROM {identifier(what.keys)} LIMIT {_MOST_KEYS + 1}"
    found = pa.concat_tables([schema.empty_table(), *database.rows(text, schema)])
    return found if found.num_rows <= _MOST_KEYS else None


def _select(name: str) -> str:
    return f"SELECT * FROM {identifier(name)}"


def _refuse_repeated(database: Database, rows: str, definition: TableDefinition) -> None:
    key = definition.primary_key
    schema = pa.schema([definition.schema.to_arrow().field(name) for name in key])
    listed = ", ".join(map(identifier, key))
    known = " AND ".join(f"{identifier(name)} IS NOT NULL" for name in key)  # a null is an error of its own
    text = f"SELECT {listed} FROM {identifier(rows)} WHERE {known} GROUP BY {listed} HAVING count(*) > 1 LIMIT 1"
    for found in database.rows(text, schema):
        for one in found.to_pylist():
            raise repeated_key(one)

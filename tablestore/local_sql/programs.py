"""`translated`: writes queries of Spark over tables, and over each other, for DuckDB. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot.errors import SqlglotError

from tablestore.local_sql.calls import check_tokens
from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.scope import Output
from tablestore.local_sql.selects import ANY, Relation, Selects
from tablestore.local_sql.typed import Typed
from tablestore.local_sql.value_types import duckdb_type

__all__ = ["Made", "Program", "Read", "translated"]


@dataclass(frozen=True, slots=True)
class Read:
    """A table that is read.

    Attributes:
        columns: The columns that the program needs, at least one.
        schema: All of its columns. Those that are not needed are null.
    """

    columns: tuple[str, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a query.

    Attributes:
        text: The query, for DuckDB.
        schema: Its columns.
        is_shared: Whether it is read several times, so that it is computed once.
    """

    text: str
    schema: pa.Schema
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Program:
    """Queries for DuckDB.

    Attributes:
        relations: What is read and made, by name, each behind those that it reads. What nothing reads is left out.
    """

    relations: Mapping[str, Read | Made]


def translated(relations: Mapping[str, pa.Schema | str], wanted: Iterable[str], *, in_utc: bool = False) -> Program:
    """Writes queries for DuckDB.

    Args:
        relations: By name, each behind those that it reads: the columns of a table, or a query of Spark.
        wanted: The relations whose rows are wanted, in all their columns.
        in_utc: Whether the session's time zone is UTC.

    Raises:
        NotLocalError: there is something in a query that is not known to have the same result as in Spark.
    """
    known: dict[str, tuple[Output, ...]] = {}
    found: dict[str, Relation] = {}
    for name, what in relations.items():
        if isinstance(what, str):
            relation = found[name] = _written(what, known, in_utc)
            schema = pa.schema([(column.name, column.value.kind) for column in relation.columns])
        else:
            schema = what
        known[name] = tuple(Output(one.name, Typed("", one.type, frozenset({(name, one.name)}))) for one in schema)
    wanted = set(wanted)
    needed = _needed(relations, found, known, wanted)
    readers = [{other for other, _ in relation.uses} for name, relation in found.items() if name in needed]
    made: dict[str, Read | Made] = {}
    for name in relations:
        if name not in needed:
            continue
        schema = pa.schema([(column.name, column.value.kind) for column in known[name]])
        if name in found:
            _require_types(schema, needed[name])
            made[name] = Made(found[name].text, schema, (name in wanted) + sum(name in read for read in readers) > 1)
        else:
            made[name] = Read(_read(schema, needed[name]), schema)
    return Program(made)


def _written(text: str, known: Mapping[str, tuple[Output, ...]], in_utc: bool) -> Relation:
    try:
        check_tokens(text)
        return Selects(known.get, in_utc).named_query(sqlglot.parse_one(text, dialect="spark"))
    except SqlglotError as error:
        raise NotLocalError(f"it cannot be read here: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise NotLocalError("it has hundreds of operators within each other") from error


def _needed(
    relations: Mapping[str, object],
    found: Mapping[str, Relation],
    known: Mapping[str, tuple[Output, ...]],
    wanted: Iterable[str],
) -> dict[str, set[str]]:
    """Returns for each relation that is read the columns of it from which what is wanted follows."""
    needed: dict[str, set[str]] = {name: {column.name for column in known[name]} for name in wanted}
    for name in reversed(list(relations)):
        if name not in needed or (relation := found.get(name)) is None:
            continue
        uses = set(relation.always)
        for column in relation.columns:
            if column.name in needed[name]:
                uses |= column.value.uses
        for other, read in uses:
            needed.setdefault(other, set()).update({read} - {ANY})
    return needed


def _require_types(schema: pa.Schema, names: set[str]) -> None:
    for one in schema:
        if one.name in names and duckdb_type(one.type) is None:
            raise NotLocalError(f"its column {one.name} has the type {one.type}")


def _read(schema: pa.Schema, names: set[str]) -> tuple[str, ...]:
    """Returns the columns to read, in their order; of a table of which none is needed, one whose values are small."""
    _require_types(schema, names)
    if names:
        return tuple(one.name for one in schema if one.name in names)
    small = sorted(schema, key=lambda one: (duckdb_type(one.type) is None, str(duckdb_type(one.type)) == "VARCHAR"))
    _require_types(schema, {small[0].name})
    return (small[0].name,)

"""The request of a look-up join, checked against the columns of both sides. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.types import to_sql
from tablestore.reading import keyed_rows
from tablestore.reading.asked_keys import fitted_key

__all__ = ["EXPIRED", "KINDS", "Expired", "Kind", "LookupPlan", "LookupRequest", "On", "key_schema"]

On: TypeAlias = str | Sequence[str] | Mapping[str, str] | None
"""Columns that have to be equal: names that both sides have, or the rows' names with those of the table."""

Kind: TypeAlias = Literal["inner", "left"]
Expired: TypeAlias = Literal["fail", "oldest"]
KINDS: tuple[str, ...] = get_args(Kind)
EXPIRED: tuple[str, ...] = get_args(Expired)
PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A look-up join as it is asked for.

    Attributes:
        on: The columns that have to be equal; None: the table's primary key, by the same names.
        kind: ``left``: a row without a match is in the result, with nulls; ``inner``: it is not.
        columns: The columns of the table in the result; None: all but those of `on`.
        prefix: Is put before their names.
        at: The column of the rows with the time of which the table's version is meant; None: the newest version, which
            ``processing`` asks for, too.
        expired: What to do where that version has expired: ``fail``, or ``oldest``: take the oldest one that is left.
    """

    on: On = None
    kind: str = "left"
    columns: Sequence[str] | None = None
    prefix: str = ""
    at: str | None = None
    expired: str = "fail"

    @property
    def event_time(self) -> str | None:
        """The column of event times; None for processing time."""
        return None if self.at == PROCESSING else self.at

    def pairs(self, definition: TableDefinition) -> tuple[tuple[str, str], ...]:
        """Returns the pairs of a column of the rows and a column of the table.

        Raises:
            InvalidRequest: ``bad-lookup``: no column, one twice, or one whose values cannot be keys.
            NotFound: ``unknown-column``: the table has no such column.
        """
        match self.on:
            case None:
                found = [(name, name) for name in definition.primary_key]
            case str():
                found = [(self.on, self.on)]
            case Mapping():
                found = list(self.on.items())
            case _:
                found = [(name, name) for name in self.on]
        if not found:
            raise _bad("the table has no primary key, so say on= which columns have to be equal")
        for side, names in (("the rows", [name for name, _ in found]), ("the table", [name for _, name in found])):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise _bad(f"on= has column {twice[0]!r} of {side} twice")
        for _, name in found:
            if pa.types.is_nested(kind := definition.schema.column(name).type):
                raise _bad(f"column {name!r} is {to_sql(kind)}, and only single values can be looked up")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """A look-up join that was checked. Picklable. Make it with `LookupPlan.of`.

    Attributes:
        on: Pairs of a column of the rows and the column of the table that it has to equal.
        inner: Whether rows without a match are left out.
        columns: Pairs of a column of the table and its name in the result.
        at: The rows' column of event times; None for the newest version.
        oldest: Whether the oldest version that is left stands for one that has expired.
        processing: Whether the newest version was asked for as ``processing``.
        wanted: The columns of the table that are read, numbered: those of the key, of `on` and of the result. Versions
            with other columns are converted to these.
        primary_key: The table's primary key.
        small_bytes: A version whose files have at most this many bytes is read as a whole, and kept.
    """

    on: tuple[tuple[str, str], ...]
    inner: bool
    columns: tuple[tuple[str, str], ...]
    at: str | None
    oldest: bool
    processing: bool
    wanted: Schema
    primary_key: tuple[str, ...]
    small_bytes: int

    @classmethod
    def of(cls, request: LookupRequest, definition: TableDefinition) -> LookupPlan:
        """Checks a request against the table.

        Raises:
            InvalidRequest: ``bad-lookup``.
            NotFound: ``unknown-column``.
        """
        for name, given, known in (("kind", request.kind, KINDS), ("expired", request.expired, EXPIRED)):
            if given not in known:
                raise _bad(f"{name}={given!r} is not known: use {' or '.join(map(repr, known))}")
        on = request.pairs(definition)
        keys = [name for _, name in on]
        schema = definition.schema.numbered()
        chosen = [n for n in schema.names if n not in keys] if request.columns is None else list(request.columns)
        if twice := [name for name, count in Counter(chosen).items() if count > 1]:
            raise _bad(f"columns= has {twice[0]!r} twice")
        wanted = schema.select(dict.fromkeys([*definition.primary_key, *keys, *chosen]))
        return cls(
            on=on,
            inner=request.kind == "inner",
            columns=tuple((name, request.prefix + name) for name in chosen),
            at=request.event_time,
            oldest=request.expired == "oldest",
            processing=request.at == PROCESSING,
            wanted=wanted,
            primary_key=definition.primary_key,
            small_bytes=keyed_rows.SMALL_BYTES,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the table that are compared."""
        return tuple(name for _, name in self.on)

    @property
    def by_key(self) -> bool:
        """Returns whether `on` has the whole primary key, so that at most one row matches."""
        return bool(self.primary_key) and set(self.primary_key) <= set(self.keys)

    def fields(self) -> list[pa.Field]:
        """The columns that the result has of the table; all may be null."""
        return [pa.field(shown, self.wanted.column(name).type) for name, shown in self.columns]

    def check(self, given: pa.Schema) -> None:
        """Checks the columns of the rows, of which an empty table has all that counts.

        Raises:
            InvalidRequest: ``bad-lookup``: a column that they lack, have twice, or that the table has, too;
                ``bad-value``: a type that does not fit the table's.
        """
        if twice := [name for name, count in Counter(given.names).items() if count > 1]:
            raise _bad(f"the rows have column {twice[0]!r} twice: rename one of them")
        asked = [name for name, _ in self.on]
        for name in asked if self.at is None else [*asked, self.at]:
            if name not in given.names:
                raise _bad(f"the rows have no column {name!r}; they have {', '.join(given.names) or '(none)'}")
        if both := [shown for _, shown in self.columns if shown in given.names]:
            raise _bad(
                f"the rows and the table both have a column {both[0]!r}: choose columns=, or put a prefix= before the "
                "table's"
            )
        for name, key in self.on:
            field = pa.field(name, self.wanted.column(key).type)
            fitted_key(pa.chunked_array([pa.array([], given.field(name).type)]), field)
        if self.processing and PROCESSING in given.names and pa.types.is_timestamp(given.field(PROCESSING).type):
            raise _bad("at='processing' asks for the newest version, and the rows have a time of this name: rename it")
        if self.at is not None and not _is_time(kind := given.field(self.at).type):
            raise _bad(f"at={self.at!r} is a column of type {kind}, and has to be a timestamp: cast it")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_null(kind))  # rows of Python may have no time at all


def key_schema(plan: LookupPlan) -> pa.Schema:
    """The columns of the rows that are looked up, in the table's types: values of Python have no exact types."""
    return pa.schema([pa.field(name, plan.wanted.column(key).type) for name, key in plan.on])


def _bad(problem: str) -> InvalidRequest:
    return InvalidRequest(f"this look-up join is not possible: {problem}", code="bad-lookup")

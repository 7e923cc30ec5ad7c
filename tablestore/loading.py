"""Loads files into a table: finds out their columns, creates the table if there is none, and writes their rows."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.errors import AlreadyExists, InvalidRequest, NotFound, TableStoreError
from filestore.model.options import OPTIONS
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.snapshot import Snapshot
from filestore.model.sql import parse_columns
from filestore.model.table_options import TableOptions
from filestore.model.text import none_named
from filestore.progress import Observe
from tablestore.incoming.columns import in_sql
from tablestore.incoming.files.columns import FileColumns, columns_of
from tablestore.incoming.files.row_file import RowFile
from tablestore.incoming.fitting import fit
from tablestore.table import Table

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = ["LoadPlan", "NewTable", "files_of", "plan_load"]

_PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class NewTable:
    """Describes what a table has beside its columns, if a load creates it.

    Attributes:
        primary_key: Key columns.
        partition_by: Partition columns.
        options: The table's options.
        comment: Free text.
        columns: A SQL list of columns whose type or NOT NULL is to be another one than that of the files.
    """

    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    columns: str | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load that nothing was written of.

    Attributes:
        store: The store.
        name: The table.
        files: The files.
        new: What a new table has.
        table: The table; None if the load creates it.
        found: The columns of the table.
    """

    store: Store
    name: str
    files: Sequence[RowFile]
    new: NewTable
    table: Table | None
    found: FileColumns

    def column_lines(self) -> Iterator[str]:
        """Yields a line for each column."""
        width = max(map(len, self.found.schema.names), default=0)
        for column in self.found.schema:
            yield f"{column.name:{width}}  {in_sql(_in_key(column, self.new.primary_key))}"

    def run(self, observe: Observe | None = None) -> tuple[Table, Snapshot]:
        """Writes the rows as one commit: as upserts into a table that exists, else into a new one.

        A new table is seen with its rows, or not at all, and so is its database if that is new. `observe` is as for
        `Table.write`.

        Raises:
            InvalidRequest: rows that do not fit; as `Store.create_table` and `Table.write`.
        """
        if self.table is not None:
            return self.table, self.table.write(_Rows(self.files, self.table.schema), observe=observe)
        with (
            _database(self.store, self.name.partition(".")[0]),
            self.store.staged_table(
                self.name,
                self.found.schema,
                primary_key=self.new.primary_key,
                partition_by=self.new.partition_by,
                options=self.new.options,
                comment=self.new.comment,
            ) as staged,
        ):
            snapshot = staged.write(_Rows(self.files, staged.schema), observe=observe)
        return self.store.table(self.name), snapshot


def plan_load(
    store: Store, name: str, files: Sequence[RowFile], new: NewTable, observe: Observe | None = None
) -> LoadPlan:
    """Finds out whether the table exists, and the columns if it does not. `observe` takes how many rows it reads then.

    Raises:
        InvalidRequest: as `tablestore.incoming.files.columns.columns_of`.
        AlreadyExists: ``table-exists``: with another key, other partition columns, or columns that were chosen.
        Unsupported: ``connector-table``: it is a Kafka topic.
    """
    if "connector" in new.options:
        raise InvalidRequest("a topic is not loaded: create its table, and write the files", code="connector-table")
    try:
        table = store.table(name)
    except NotFound as error:
        if error.code not in ("table-not-found", "database-not-found"):
            raise
    else:
        _require_like(table, name, new)
        return LoadPlan(store, name, files, new, table, FileColumns(table.schema))
    chosen = None if new.columns is None else parse_columns(new.columns)
    return LoadPlan(store, name, files, new, None, columns_of(files, chosen, observe))


def files_of(given: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[Path]:
    """Returns the files of paths and patterns, those of a pattern in the order of their names.

    Raises:
        InvalidRequest: ``no-files``.
    """
    paths = [fspath(path) for path in ([given] if isinstance(given, str | PathLike) else given)]
    found: list[Path] = []
    for path in paths:
        if _PATTERN.isdisjoint(path) or Path(path).exists():
            found.append(Path(path))
            continue
        matching = sorted(one for one in map(Path, glob.glob(path, recursive=True)) if one.is_file())
        if not matching:
            raise InvalidRequest(f"no file is named like {path}", code="no-files")
        found += matching
    if not found:
        raise InvalidRequest("name at least one file", code="no-files")
    return found


@contextmanager
def _database(store: Store, name: str) -> Iterator[None]:
    """Creates a database if there is none, and drops it again if the block fails and nobody has put a table into it."""
    try:
        store.create_database(name)
    except AlreadyExists:
        yield
        return
    try:
        yield
    except BaseException:
        with suppress(TableStoreError):
            store.drop_database(name)
        raise


def _require_like(table: Table, name: str, new: NewTable) -> None:
    """Refuses what a table that exists would have to be created with. The same again is no mistake."""
    definition = table.definition
    for what, wanted, has in (
        ("primary key", new.primary_key, definition.primary_key),
        ("partition columns", new.partition_by, definition.partition_by),
    ):
        if wanted and tuple(wanted) != tuple(has):
            raise AlreadyExists(
                f"table {name} exists, and its {what} are {', '.join(has) or 'none'}, not {', '.join(wanted)}: leave "
                "them out, or choose another name",
                code="table-exists",
            )
    if new.comment and new.comment != definition.comment:
        raise AlreadyExists(
            f"table {name} exists, and its comment is another one: leave it out, or change it with `tablestore alter`",
            code="table-exists",
        )
    asked = TableOptions.parse(new.options)
    for option, text in asked.given:
        stored = definition.options.as_dict().get(option)
        if stored != text and (option not in OPTIONS or definition.options[option] != asked[option]):
            raise AlreadyExists(
                f"table {name} exists, and its option {option} has another value: leave it out, or change it with "
                "`tablestore alter`",
                code="table-exists",
            )
    if new.columns is not None:
        stored_columns = {column.name: column for column in table.schema}
        for column in parse_columns(new.columns).to_arrow():
            if stored_columns.get(column.name) != _in_key(column, definition.primary_key):
                raise AlreadyExists(
                    f"table {name} exists with other columns: {definition.schema.to_sql()}", code="table-exists"
                )


def _in_key(column: pa.Field, primary_key: Sequence[str]) -> pa.Field:
    """Returns the column as it is in a table of that key, whose columns are NOT NULL."""
    return column.with_nullable(column.nullable and column.name not in primary_key)


class _Rows:
    """The rows of files, one after the other, in the columns of a table that they have."""

    def __init__(self, files: Sequence[RowFile], schema: pa.Schema) -> None:
        own = {column.name: column.with_nullable(True) for column in schema}
        self._parts = [file.rows(schema) for file in files]
        fields: dict[str, pa.Field] = {}
        for part in self._parts:
            for column in part.schema:
                if column.name not in own and column.name != KIND_COLUMN:
                    raise InvalidRequest(
                        f"{part.file.name} has a column that the table lacks: "
                        f"{none_named('column', column.name, list(own))}",
                        code="unknown-column",
                    )
                fields.setdefault(column.name, own.get(column.name, column))
            if (KIND_COLUMN in part.schema.names) != (KIND_COLUMN in fields):
                raise InvalidRequest(
                    f"{part.file.name} lacks the column {KIND_COLUMN}, which another file has: load them one by one",
                    code="files-differ",
                )
        self.schema = pa.schema(list(fields.values()))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, once."""
        for part in self._parts:
            before = 0
            for batch in part.to_batches():
                try:
                    columns = [self._column(batch, column, before) for column in self.schema]
                except InvalidRequest as error:
                    raise error.about(part.file.name) from error
                before += batch.num_rows
                yield from pa.table(columns, self.schema).to_batches()

    @staticmethod
    def _column(batch: pa.RecordBatch, wanted: pa.Field, before: int) -> pa.ChunkedArray:
        if wanted.name not in batch.schema.names:
            return pa.chunked_array([pa.nulls(batch.num_rows, wanted.type)])
        return fit(pa.chunked_array([batch.column(wanted.name)]), wanted, before)

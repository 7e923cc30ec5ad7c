"""Finds out which columns files have: of Parquet exactly, of CSV and JSON by all their values, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Schema
from filestore.model.text import did_you_mean, none_named
from filestore.model.types import to_sql
from filestore.progress import Counter, Observe
from log.connector.formats.csv_files import CsvFile
from log.connector.formats.json.files import Piece, pieces
from log.connector.formats.json.values import TOPICS
from tablestore.incoming.columns import storable, wider
from tablestore.incoming.files.documents import document_facts
from tablestore.incoming.files.facts import Facts
from tablestore.incoming.files.kinds import FileKind
from tablestore.incoming.files.row_file import RowFile
from tablestore.incoming.files.texts import field_facts

__all__ = ["FileColumns", "columns_of"]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a table for the rows of files.

    Attributes:
        schema: The columns.
        remarks: What somebody should look at: why a column is a text, or that it has no value.
    """

    schema: pa.Schema
    remarks: tuple[str, ...] = ()


def columns_of(files: Sequence[RowFile], chosen: Schema | None = None, observe: Observe | None = None) -> FileColumns:
    """Returns the columns of some files, in the order of the first one.

    All have the same columns, in any order; of JSON an object may lack some. A type is the narrowest that holds the
    values of all files; of Parquet types the wider of two, as Delta widens them.

    Args:
        files: At least one.
        chosen: Columns whose type or NOT NULL is to be another one.
        observe: Takes how many rows were read.

    Raises:
        InvalidRequest: ``bad-file``; ``files-differ``: the files do not have the same columns; ``unknown-column``: a
            chosen one that they lack; ``unsupported-type``.
    """
    kinds = {FileKind.CSV if file.kind.is_csv else file.kind for file in files}
    if len(kinds) > 1:
        names = {str(kind): next(file.name for file in files if file.kind is kind) for kind in {f.kind for f in files}}
        raise InvalidRequest(
            f"the files are of several kinds ({', '.join(names.values())}): load those of one kind at a time",
            code="files-differ",
        )
    taken = {field.name: field for field in (chosen.to_arrow() if chosen else ())}
    found = _OF_KIND[kinds.pop()](files, taken, Counter(observe, "finding the columns of"))
    for name in taken:
        if name not in found.schema.names:
            raise InvalidRequest(none_named("column", name, found.schema.names), code="unknown-column")
    schema = pa.schema([taken.get(field.name, field) for field in found.schema])
    if not schema.names:
        raise InvalidRequest(f"{files[0].name} has no columns", code="no-columns")
    return FileColumns(schema, found.remarks)


def _of_csv(files: Sequence[RowFile], taken: Mapping[str, pa.Field], reading: Counter) -> FileColumns:
    facts: dict[str, Facts] = {}
    for file in files:
        with file.reading():
            opened = file.csv(list(facts))
            if facts:
                _require_same(files[0].name, list(facts), file.name, opened.names)
            else:
                facts = dict.fromkeys(opened.names, Facts())
            _add_fields(opened, facts, taken, reading)
    return _decided(facts, taken)


def _add_fields(file: CsvFile, facts: dict[str, Facts], taken: Mapping[str, pa.Field], reading: Counter) -> None:
    for fields in reading.rows_of(file.texts()):
        for name, column in zip(file.names, fields.columns, strict=True):
            if name not in taken and name != KIND_COLUMN:
                facts[name] = field_facts(column, file.style.times, facts[name])


def _of_json(files: Sequence[RowFile], taken: Mapping[str, pa.Field], reading: Counter) -> FileColumns:
    facts: dict[str, Facts] = {}
    for file in files:
        with file.reading():
            for piece in pieces(file.open):
                for name, found in _members(piece).items():
                    facts[name] = facts.get(name, Facts()) + found
                reading.add(len(piece.documents))
    return _decided(facts, taken)


def _members(piece: Piece) -> Mapping[str, Facts]:
    try:
        return document_facts(piece.documents)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        piece.rows(pa.schema([]), TOPICS)  # says which document is none
        raise ValueError(f"{piece.names(0)} and what follows: {error}") from error


def _decided(facts: Mapping[str, Facts], taken: Mapping[str, pa.Field]) -> FileColumns:
    left = {name: found for name, found in facts.items() if name != KIND_COLUMN}
    remarks = [text for name, found in left.items() if name not in taken for text in found.remarks(name)]
    return FileColumns(pa.schema([pa.field(name, found.type()) for name, found in left.items()]), tuple(remarks))


def _of_parquet(files: Sequence[RowFile], taken: Mapping[str, pa.Field], _: Counter) -> FileColumns:
    fields: dict[str, pa.Field] = {}
    for file in files:
        with file.reading():
            schema = file.parquet_schema
        found = {field.name: field for field in storable(schema)}
        if fields:
            _require_same(files[0].name, list(fields), file.name, list(found))
        for name, field in found.items():
            fields[name] = _joined(fields.get(name, field), field, files[0].name, file.name, in_any=name in taken)
    return FileColumns(pa.schema(list(fields.values())))


def _joined(one: pa.Field, other: pa.Field, first: str, file: str, *, in_any: bool) -> pa.Field:
    kind = wider(one.type, other.type)
    if kind is None and not in_any:
        raise InvalidRequest(
            f"column {one.name!r} is {to_sql(one.type)} in {first} and {to_sql(other.type)} in {file}, and neither "
            "holds the other's values: choose its type",
            code="files-differ",
        )
    return pa.field(one.name, kind or one.type, one.nullable or other.nullable)


def _require_same(first: str, names: Sequence[str], file: str, found: Sequence[str]) -> None:
    """Refuses a file that has other columns than the first one."""
    for name in found:
        if name not in names:
            raise InvalidRequest(
                f"{file} has a column {name!r}{did_you_mean(name, names)}, which {first} lacks", code="files-differ"
            )
    for name in names:
        if name not in found:
            raise InvalidRequest(f"{file} lacks the column {name!r} of {first}", code="files-differ")


_OF_KIND: Mapping[FileKind, Callable[[Sequence[RowFile], Mapping[str, pa.Field], Counter], FileColumns]] = {
    FileKind.CSV: _of_csv,
    FileKind.JSON: _of_json,
    FileKind.PARQUET: _of_parquet,
}

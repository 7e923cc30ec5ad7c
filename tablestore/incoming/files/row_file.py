"""`RowFile`: a file of CSV, JSON or Parquet, and its rows a part at a time. Errors name the file and the line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.decoding import is_undecodable
from filestore.errors import InvalidRequest
from filestore.model.rowkind import KIND_COLUMN
from filestore.storage.temporary import temporary_folder
from log.connector.formats.csv_files import CsvFile, CsvStyle
from log.connector.formats.csv_times import check_time_format
from log.connector.formats.json.files import named_members, rows_of
from log.connector.formats.json.values import Rules
from tablestore.incoming.files.kinds import COMPRESSIONS, SUFFIXES, FileKind

__all__ = ["RULES", "FileRows", "RowFile", "csv_style", "spooled"]

RULES = Rules(unknown=False, entries=True, days=False, zones=False)
"""``scan`` prints a MAP as entries. People write what else topics take for a value and mean another one."""

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_PARQUET = b"PAR1"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a file: a source for `tablestore.incoming.given.Rows`."""

    file: RowFile
    schema: pa.Schema
    _parts: Iterator[pa.RecordBatch]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, once."""
        with self.file.reading():
            yield from self._parts


@dataclass(frozen=True)
class RowFile:
    """A file of rows.

    Attributes:
        path: The file.
        name: What it is called in errors.
        kind: How it is written.
        style: Of CSV: how it is written.
        compression: The compression of a text, as Arrow calls it.
    """

    path: Path
    name: str
    kind: FileKind
    style: CsvStyle
    compression: str | None = None

    @classmethod
    def of(cls, path: Path, style: CsvStyle | None = None, kind: FileKind | None = None, name: str = "") -> RowFile:
        """Describes a file by the ending of its name, or by its first bytes if that says nothing.

        Args:
            path: The file.
            style: How it is written if it is CSV.
            kind: What it is, if that is known.
            name: What it is called in errors; default: its path.

        Raises:
            InvalidRequest: ``bad-file``: it cannot be read, or nothing says what it is; ``not-csv``: a style for
                something else.
        """
        name = name or str(path)
        with _reading(name), path.open("rb") as file:
            start = file.read(len(_PARQUET))
        suffix, compression = path.suffix.lower(), None
        if suffix in COMPRESSIONS and Path(path.stem).suffix.lower() != ".parquet":
            compression, suffix = COMPRESSIONS[suffix], Path(path.stem).suffix.lower()
        elif kind is not None or suffix not in SUFFIXES:
            compression = next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)
        found = cls(path, name, kind or SUFFIXES.get(suffix) or FileKind.CSV, style or CsvStyle(), compression)
        if kind is None and suffix not in SUFFIXES:
            found = replace(found, kind=found._seen(start, named=bool(path.suffix)))
        if style is not None and not found.kind.is_csv:
            raise InvalidRequest(
                f"{name} is no CSV: a delimiter, null, encoding or format of times is for CSV", code="not-csv"
            )
        if found.kind is FileKind.TSV and found.style.delimiter is None:
            found = replace(found, style=replace(found.style, delimiter="\t"))
        return found

    def rows(self, schema: pa.Schema) -> FileRows:
        """Reads the rows, for a table of those columns.

        A column that the table lacks is returned, too; of JSON it is an error.

        Raises:
            InvalidRequest: ``bad-file``.
        """
        fields = {field.name: field for field in [*schema, pa.field(KIND_COLUMN, pa.string())]}
        with self.reading():
            match self.kind:
                case FileKind.PARQUET:
                    return FileRows(self, self.parquet_schema, self._row_groups())
                case FileKind.JSON:
                    return self._json(fields)
                case _:
                    found, parts = self.csv(list(fields)).rows(fields, RULES)
                    return FileRows(self, found, parts)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Makes the errors of reading the file errors of the tree, with its name."""
        with _reading(self.name):
            yield

    def csv(self, known: Sequence[str] = ()) -> CsvFile:
        """Reads the first line of a file of CSV; `ValueError` as `CsvFile.opened`."""
        return CsvFile.opened(self.open, self.style, known)

    @cached_property
    def parquet_schema(self) -> pa.Schema:
        """The columns of a file of Parquet; `ValueError` for two of one name."""
        with pq.ParquetFile(self.path) as file:
            schema = file.schema_arrow.remove_metadata()
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise ValueError(f"it has two columns {name!r}: rename one")
        return schema

    def is_blank(self) -> bool:
        """Returns whether it has no text at all."""
        with self.reading(), self.open() as file:
            while block := file.read(1 << 20):
                if block.strip():
                    return False
        return True

    def open(self) -> BinaryIO:
        """Opens it at its beginning, unpacked."""
        if self.compression is None:
            return self.path.open("rb")
        return cast(BinaryIO, pa.input_stream(str(self.path), compression=self.compression))

    def _seen(self, start: bytes, *, named: bool) -> FileKind:
        """Decides by its first bytes what a file without a telling name is."""
        if start == _PARQUET:
            return FileKind.PARQUET
        with self.reading(), self.open() as file:
            text = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
        if text[:1] in (b"{", b"[") or not (text or named):
            return FileKind.JSON
        if named:
            raise InvalidRequest(
                f"{self.name}: the name ends with none of {', '.join(SUFFIXES)}, nor with .gz, .zst or .bz2 behind "
                "it: say what it is",
                code="unknown-file",
            )
        return FileKind.CSV

    def _json(self, fields: Mapping[str, pa.Field]) -> FileRows:
        schema = pa.schema([field.with_nullable(True) for field in fields.values()])
        # a column that no object has is one that the rows lack, and not one of nulls
        optional = [name for name, field in fields.items() if field.nullable]
        absent = set(optional) - named_members(self.open, optional)
        given = [name for name in fields if name not in absent] or list(fields)
        parts = (rows.select(given) for rows in rows_of(self.open, schema, RULES))
        batches = (batch for rows in parts for batch in rows.to_batches())
        return FileRows(self, pa.schema([schema.field(name) for name in given]), batches)

    def _row_groups(self) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches(_BATCH_ROWS)


@contextmanager
def spooled(stream: IO[bytes]) -> Iterator[Path]:
    """Copies a stream that can be read once to a file, which is gone in the end."""
    with temporary_folder("tablestore-input-") as folder:
        copy = Path(folder) / "rows"
        with copy.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        yield copy


def csv_style(
    delimiter: str | None = None, null: str | None = None, encoding: str | None = None, times: Sequence[str] = ()
) -> CsvStyle | None:
    """Returns the style that options describe; None if none is given.

    Raises:
        InvalidRequest: ``bad-delimiter``, ``bad-time-format``.
    """
    if delimiter is None and null is None and encoding is None and not times:
        return None
    delimiter = "\t" if delimiter == "\\t" else delimiter
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise InvalidRequest(
            f"the delimiter {delimiter!r} is not one character that may be between fields", code="bad-delimiter"
        )
    for pattern in times:
        if (wrong := check_time_format(pattern)) is not None:
            raise InvalidRequest(wrong, code="bad-time-format")
    return CsvStyle(delimiter, null, encoding, tuple(times))


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if isinstance(error, OSError):
            raise _bad(name, error.strerror or str(error)) from error
        if isinstance(error, ValueError) or is_undecodable(error):
            raise _bad(name, str(error).partition("\n")[0]) from error
        raise


def _bad(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{name} cannot be read: {why}", code="bad-file")

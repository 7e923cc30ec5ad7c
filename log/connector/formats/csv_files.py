"""Reads the rows of a file of CSV by the reader of topics, a block at a time; its first line has the columns' names."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from filestore.lazily import pl
from filestore.model.types import is_moment
from log.connector.formats.csv import CsvFormat, check_csv_type
from log.connector.formats.csv_times import in_iso
from log.connector.formats.json.values import Rules

__all__ = ["CsvFile", "CsvStyle", "Opener"]

Opener = Callable[[], BinaryIO]
"""Opens a file at its beginning."""

_BLOCK = 8 << 20
"""The bytes that are parsed at once: the longest row."""
_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 20
_DECLARED = re.compile(f'("?)sep=([{_DELIMITERS}])\\1(?:\\r\\n|\\r|\\n|$)', re.IGNORECASE)
"""The first line by which Excel knows the delimiter."""
_OTHER_TIME = re.compile(r': "\d{1,4}([./-])\d{1,2}\1\d{1,4}.*" is no (DATE|TIMESTAMP)')
_ADVICE = ": name its format, such as %d.%m.%Y"
_MARK = "\ufeff"
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """The way in which a file is written.

    Args:
        delimiter: Between fields: one character. None: the one of comma, semicolon, tab and bar that a first line such
            as ``sep=;`` names; else the one by which the first line is names of columns; if these are not known, the
            one that cuts the first rows into the most fields.
        null: How nulls are written; None: as nothing.
        encoding: A name that Python knows. None: UTF-8, or UTF-16 with a byte order mark.
        times: How days and times are written besides ISO 8601 and 2015/01/31, such as ``%d.%m.%Y``.
    """

    delimiter: str | None = None
    null: str | None = None
    encoding: str | None = None
    times: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file whose names of columns are read.

    Attributes:
        open: Opens it.
        style: How it is written.
        delimiter: Between its fields.
        names: The names in its first line, or behind the line ``sep=;`` of Excel. No name comes twice.
    """

    open: Opener
    style: CsvStyle
    delimiter: str
    names: tuple[str, ...]
    _head: _Head

    @classmethod
    def opened(cls, opener: Opener, style: CsvStyle = CsvStyle(), known: Sequence[str] = ()) -> CsvFile:
        """Reads the names of the columns.

        Args:
            opener: Opens the file.
            style: How it is written.
            known: The names of columns that it may have. A name in other upper and lower case is that column's, too.

        Raises:
            ValueError: it is no such file; the text says why.
        """
        with opener() as file:
            text = _Text(file, style.encoding)
            begin = text.piece()
            head = _head(begin, style.delimiter, known, cut=not text.is_whole)
        if "\0" in begin[: head.end]:
            raise ValueError("its first line has NUL characters, as UTF-16 has: name its encoding, such as utf-16-le")
        return cls(opener, style, head.delimiter, tuple(head.columns(known)), head)

    def texts(self) -> Iterator[pa.RecordBatch]:
        """Yields the fields as texts, with numbers as the columns' names; one that has the text of nulls is null.

        Empty lines are no rows; only in a file of one column each is a null.

        Raises:
            ValueError: a line has another number of fields, or is not in the file's encoding.
        """
        numbers = [f"{number}" for number in range(len(self.names))]
        form = CsvFormat(pa.schema([]), self.delimiter, null_literal=self.style.null)
        with self.open() as file:
            for block in self._blocks(_Text(file, self.style.encoding, skip=self._head.end)):
                try:
                    # Arrow drops a mark with which a text begins: here it is a character of the first field
                    rows = form.parsed((_MARK * block.startswith(_MARK) + block).encode(), numbers)
                except pa.ArrowInvalid as error:
                    raise ValueError(self._problem() or str(error).partition("\n")[0]) from error
                yield from rows.to_batches()

    def _blocks(self, text: _Text) -> Iterator[str]:
        """Yields whole rows."""
        rest = ""
        while piece := text.piece():
            whole, rest = _whole_rows(rest + piece, self.delimiter)
            if whole:
                yield whole
            if len(rest) > _BLOCK:
                raise ValueError(f"a row, or a text whose quote is not closed, has more than {_BLOCK} bytes")
        if rest:
            yield rest

    def rows(self, fields: Mapping[str, pa.Field], rules: Rules) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Returns the columns that the file has, in its order, and its rows in their types.

        Args:
            fields: The columns by name; another column of the file is one of texts.
            rules: What stands for a value.

        Raises:
            ValueError: a value does not fit, at its row; or as for `texts`.
        """
        schema = pa.schema([fields.get(name, pa.field(name, pa.string())) for name in self.names])
        for field in schema:
            if found := check_csv_type(field.type):
                raise ValueError(f"column {field.name!r} has {found}: write it as JSON or Parquet")
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        return nullable, self._typed(CsvFormat(schema, self.delimiter, null_literal=self.style.null, rules=rules))

    def _typed(self, form: CsvFormat) -> Iterator[pa.RecordBatch]:
        before = 0
        for texts in self.texts():
            numbers = np.arange(before + 1, before + texts.num_rows + 1)
            columns = [
                in_iso(column, self.style.times) if is_moment(field.type) else column
                for column, field in zip(texts.columns, form.schema, strict=True)
            ]
            bad: dict[int, str] = {}
            rows = form.typed(pa.table(columns, form.schema.names), numbers, bad)
            if bad:
                first = bad[min(bad)]
                raise ValueError(f"row {min(bad)}: {first}" + _ADVICE * bool(_OTHER_TIME.search(first)))
            yield from rows.to_batches()
            before += texts.num_rows

    def _problem(self) -> str | None:
        """Returns which is the first line with other fields than the header. It loops over lines, after an error."""
        named = len(self.names)
        with self.open() as file:
            text = _Text(file, self.style.encoding, skip=self._head.end)
            lines = csv.reader(text.lines(), delimiter=self.delimiter)
            try:
                for fields in lines:
                    if fields and len(fields) != named:
                        line = self._head.lines + lines.line_num
                        return f"line {line} has {len(fields)} fields, and the header names {named} columns"
            except csv.Error:  # such as a field that is larger than the module takes
                return None
        return None


class _Text:
    """The text of a file, in pieces or in lines. An error names the line.

    Args:
        file: The file, at its beginning.
        encoding: Its encoding, if that is known.
        skip: So many characters are left out first. They are in the first piece.
    """

    def __init__(self, file: BinaryIO, encoding: str | None, skip: int = 0) -> None:
        self._file = file
        self._first: bytes | None = file.read(_BLOCK)
        self._is_whole = len(self._first) < _BLOCK
        self._name = encoding or ("utf-16" if self._first.startswith(_WIDE) else "utf-8")
        try:
            b"".decode(self._name)  # refuses what is none of texts
            self._decoder = codecs.getincrementaldecoder(self._name)()
        except LookupError:
            raise ValueError(
                f"there is no encoding {self._name!r}: name one such as utf-8, latin-1 or cp1252"
            ) from None
        self._line = 1
        self._skip = skip

    @property
    def is_whole(self) -> bool:
        """Returns whether the first piece is the whole text."""
        return self._is_whole

    def piece(self) -> str:
        """Returns the next part of the text; an empty one at its end."""
        while True:
            is_first = self._first is not None
            data = self._file.read(_BLOCK) if self._first is None else self._first
            self._first = None
            text = self._decoded(data)
            if is_first:
                text = text.removeprefix(_MARK)[self._skip :]
            if text or not data:
                return text

    def lines(self) -> Iterator[str]:
        """Yields the lines with their ends."""
        rest = ""
        while piece := self.piece():
            *whole, rest = io.StringIO(rest + piece, newline="").readlines()
            yield from whole
        if rest:
            yield rest

    def _decoded(self, data: bytes) -> str:
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._line + error.object.count(b"\n", 0, error.start)
            wrong = error.object[error.start]
            raise ValueError(
                f"line {line} is not {self._name} (byte 0x{wrong:02x}): name the file's encoding, such as latin-1 or "
                "cp1252"
            ) from None
        self._line += text.count("\n")
        return text


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line that is not empty, but for one that names the delimiter, cut by a delimiter.

    Attributes:
        delimiter: The delimiter.
        names: The fields.
        end: The number of characters up to the end of the line.
        lines: The number of lines up to there.
    """

    delimiter: str
    names: list[str]
    end: int
    lines: int

    def is_of(self, known: Sequence[str]) -> bool:
        """Returns whether all names are those of columns."""
        names = {name.lower() for name in known}
        return bool(self.names) and names.issuperset(name.lower() for name in self.names)

    def columns(self, known: Sequence[str]) -> list[str]:
        """Returns the columns that the names are."""
        if not self.names:
            raise ValueError("it is empty: the first line has the names of the columns")
        spelled = {name.lower(): name for name in known}
        found = [name if name in known else spelled.get(name.lower(), name) for name in self.names]
        for number, name in enumerate(found, 1):
            if not name.strip():
                raise ValueError(f"its first line has no name for column {number}")
            if found.count(name) > 1:
                raise ValueError(f"its first line names the column {name!r} more than once")
        if known and len(found) == 1 and found[0] not in known:
            for other in _DELIMITERS.replace(self.delimiter, ""):
                if other in found[0]:
                    raise ValueError(f"its first line names one column, {found[0]!r}: is the delimiter {other!r}?")
        return found


def _whole_rows(text: str, delimiter: str) -> tuple[str, str]:
    """Cuts a text behind its last whole row, as Arrow takes rows: only a quote with which a field begins has an end.

    A carriage return at the end may be half of an end of line, so it belongs to the rest.
    """
    ended = text.removesuffix("\r")
    if '"' not in text:
        end = 1 + max(ended.rfind("\n"), ended.rfind("\r"))
    else:
        between = re.escape(delimiter)
        plain = f'[^"{between}\\r\\n][^{between}\\r\\n]*'
        field = f'(?:{plain}|"(?:[^"]|"")*"(?:{plain})?)?'
        # each text is read in one way, so that the engine, which is linear, finds the last whole row
        rows = f"\\A(?:{field}(?:{between}{field})*(?:\\r\\n|\\r|\\n))*"
        end = len(ended) - len(pl.Series([ended]).str.replace(rows, "")[0])
    return text[:end], text[end:]


def _head(text: str, delimiter: str | None, known: Sequence[str], *, cut: bool) -> _Head:
    """Reads the first line by that delimiter; without one by the first that gives names of columns, else by a comma.

    If no names are known, it is the delimiter that cuts the first rows into the most fields, and all into as many.
    A line that names the delimiter goes before both.
    """
    lines = io.StringIO(text, newline="")
    if (declared := _DECLARED.match(text)) is not None:
        named = declared[2]
        if delimiter not in (None, named):
            raise ValueError(
                f"its first line, sep={named}, says that the delimiter is {named!r}, and not {delimiter!r}: "
                "name that one, or remove the line"
            )
        return _cut(lines, named, behind=declared.end())
    if delimiter is not None:
        return _cut(lines, delimiter)
    if known:
        heads = (_cut(lines, one) for one in _DELIMITERS)
        return next((head for head in heads if head.is_of(known)), None) or _cut(lines, ",")
    return _cut(lines, max(_DELIMITERS, key=lambda one: (_fields(lines, one, cut=cut), len(_cut(lines, one).names))))


def _cut(text: io.StringIO, delimiter: str, behind: int = 0) -> _Head:
    """Reads the first line; `behind` the first of a file that names its delimiter, after so many characters."""
    text.seek(behind)
    before = 1 if behind else 0
    lines = csv.reader(iter(text.readline, ""), delimiter=delimiter)
    try:
        names = next((line for line in lines if line), [])
    except csv.Error as error:  # such as a field that is larger than the module takes
        raise ValueError(f"line {before + lines.line_num}: {error}") from None
    return _Head(delimiter, names, text.tell(), before + lines.line_num)


def _fields(text: io.StringIO, delimiter: str, *, cut: bool) -> int:
    """Returns into how many fields a delimiter cuts each of the first rows; 0 for one, and if not all into as many."""
    text.seek(0)
    rows = csv.reader(iter(text.readline, ""), delimiter=delimiter)
    try:
        counts = [len(row) for row, _ in zip((row for row in rows if row), range(_SAMPLE_ROWS), strict=False)]
    except csv.Error:
        return 0
    if cut and len(counts) < _SAMPLE_ROWS:
        counts = counts[:-1]  # the text ends within that row
    return counts[0] if len(set(counts)) == 1 and counts[0] > 1 else 0

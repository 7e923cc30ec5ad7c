"""Opens the files that commands take, and standard input, whose rows may be of any kind, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import typer

from filestore.errors import InvalidRequest
from log.connector.formats.csv_files import CsvStyle
from tablestore.incoming.files.kinds import FileKind
from tablestore.incoming.files.row_file import RowFile, csv_style, spooled
from tablestore.loading import files_of

__all__ = ["bad_files", "csv_style_of", "row_files"]

_HINTS = {
    "bad-file": "FILE",
    "unknown-file": "FILE, --input-format",
    "no-files": "FILE",
    "not-csv": "--delimiter, --null, --encoding, --timestamp-format",
    "bad-delimiter": "--delimiter",
    "bad-time-format": "--timestamp-format",
}


@contextmanager
def bad_files() -> Iterator[None]:
    """Makes the errors of files errors of arguments."""
    try:
        yield
    except InvalidRequest as error:
        if error.code not in _HINTS:
            raise
        raise typer.BadParameter(error.message, param_hint=_HINTS[error.code]) from error


@contextmanager
def row_files(files: Sequence[Path], style: CsvStyle | None, kind: FileKind | None) -> Iterator[list[RowFile]]:
    """Opens files and patterns; ``-`` is standard input, which is copied to a file first.

    Args:
        files: Their names.
        style: How files of CSV are written, if the user has said so.
        kind: What they are, if the user has said so.

    Raises:
        InvalidRequest: as `RowFile.of` and `files_of`.
    """
    with ExitStack() as stack:
        found: list[RowFile] = []
        for path in files:
            if str(path) == "-":
                copy = stack.enter_context(spooled(sys.stdin.buffer))
                found.append(RowFile.of(copy, style, kind, "standard input"))
            else:
                found += [RowFile.of(one, style, kind) for one in files_of(path)]
        yield found


def csv_style_of(
    delimiter: str | None, null: str | None, encoding: str | None, times: Sequence[str] | None
) -> CsvStyle | None:
    """Returns the style that options describe; None if none is given."""
    with bad_files():
        return csv_style(delimiter, null, encoding, times or ())

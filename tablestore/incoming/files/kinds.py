"""`FileKind`: the kinds of files, and how their names end. It loads no Arrow, for the command line's help."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["COMPRESSIONS", "SUFFIXES", "FileKind"]


class FileKind(StrEnum):
    """The form in which a file's rows are written."""

    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    PARQUET = "parquet"

    @property
    def is_csv(self) -> bool:
        """Returns whether it is text with a delimiter."""
        return self in (FileKind.CSV, FileKind.TSV)

    @property
    def is_json(self) -> bool:
        """Returns whether it is objects of JSON."""
        return self is FileKind.JSON


SUFFIXES = {
    ".parquet": FileKind.PARQUET,
    ".csv": FileKind.CSV,
    ".tsv": FileKind.TSV,
    ".json": FileKind.JSON,
    ".ndjson": FileKind.JSON,
    ".jsonl": FileKind.JSON,
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""The compression of a text by the end of its file's name, as Arrow calls it."""

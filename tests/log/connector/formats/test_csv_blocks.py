"""A file of CSV is read in blocks: the rows are those of the whole text, and no thread of Arrow touches Python."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from log.connector.formats import csv_files
from log.connector.formats.csv import CsvFormat
from log.connector.formats.csv_files import CsvFile, CsvStyle
from tests.depth import Depth

SCRIPT = """
import io
from log.connector.formats.csv_files import CsvFile
rows = CsvFile.opened(lambda: io.BytesIO(b"id,v\\n" + b"1,x\\n" * 400_000 + b"1,2,3\\n")).texts()
try:
    for _ in rows:
        pass
except ValueError as error:
    print(error)
"""


class _Seen(io.BytesIO):
    """A file that notes the threads that read it."""

    def __init__(self, data: bytes, threads: set[int]) -> None:
        super().__init__(data)
        self._threads = threads

    def read(self, size: int | None = -1) -> bytes:
        self._threads.add(threading.get_ident())
        return super().read(size)


def test_regression_no_thread_of_arrow_reads_a_file_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of Arrow that needs Python's lock while the process exits aborts it."""
    monkeypatch.setattr(csv_files, "_BLOCK", 1000)
    threads: set[int] = set()
    file = CsvFile.opened(lambda: _Seen(b"id,v\n" + b"1,x\n" * 10_000, threads))
    assert sum(rows.num_rows for rows in file.texts()) == 10_000
    assert threads == {threading.get_ident()}


@pytest.mark.slow
def test_regression_a_process_ends_after_a_row_that_is_refused(depth: Depth) -> None:
    for _ in range(depth.times(3, deep=50)):
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "line 400002 has 3 fields, and the header names 2 columns\n")


CHARACTERS = st.sampled_from(["a", "b", '"', '"', ",", ",", "\n", "\r", "\r\n", "é", "\ufeff", '""', '"a"'])


@given(st.lists(CHARACTERS, max_size=40).map("".join), st.integers(1, 3), st.integers(12, 40))
@example('5" pipe,"a\r\n"\n"",b"\r\n', 2, 12)
@example('a\r\n\ufeffb\n"\ufeff"\n' * 3, 1, 12)
@example("\n" * 60, 2, 12)
def test_rows_of_blocks_are_those_of_the_whole_text(text: str, columns: int, block: int) -> None:
    names = [f"{number}" for number in range(columns)]
    head = ",".join("xyz"[:columns]) + "\n"
    form = CsvFormat(pa.schema([]))

    def whole() -> list[dict[str, str | None]]:
        # Arrow drops a mark at the beginning, which is the file's own
        kept = "\ufeff" * text.startswith("\ufeff") + text
        try:
            return form.parsed(kept.encode(), names).to_pylist()
        except pa.ArrowInvalid as error:
            if not text or "Empty CSV" in str(error):
                return []
            raise ValueError from error

    def parts() -> list[dict[str, str | None]]:
        file = CsvFile.opened(lambda: io.BytesIO((head + text).encode()), CsvStyle(delimiter=","))
        return [row for rows in file.texts() for row in rows.to_pylist()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_BLOCK", block)
        found = outcome(parts)
    assume(found != "too long")
    assert found == outcome(whole)


def outcome(read: Callable[[], list[dict[str, str | None]]]) -> list[dict[str, str | None]] | str:
    try:
        return read()
    except ValueError as error:
        return "too long" if "has more than" in str(error) else "refused"

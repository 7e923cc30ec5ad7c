"""The columns of files: what is inferred reads every value as it is written, in any blocks and any files."""

from __future__ import annotations

import csv
import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.sql import parse_columns
from filestore.model.types import to_sql
from log.connector.formats import csv_files
from log.connector.formats.json import files as json_files
from tablestore.incoming.files.columns import columns_of
from tablestore.incoming.files.row_file import RowFile, csv_style
from tablestore.incoming.given import arrow_rows

BIG = 2**63

# ------------------------------------------------------------------------------------------------ an oracle for texts


def is_integer(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+", text) is not None and text == str(int(text))


def is_number(text: str) -> bool:
    """A number as programs write it: not 007, 1E5, 1. or +1."""
    if not re.fullmatch(r"-?[0-9]*(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) or not re.search(r"^-?[.0-9]", text):
        return False
    whole = re.match(r"-?([0-9]*)", text)
    assert whole is not None
    return not re.fullmatch("0[0-9]+", whole[1]) and not re.fullmatch(r"-?[0-9]+[eE][0-9]+", text)


def is_exact(text: str) -> bool:
    double = float(text)
    return abs(double) != float("inf") and Decimal(repr(double)) == Decimal(text)


def moment(text: str) -> date | datetime | None:
    for pattern in ("%Y-%m-%d", "%Y/%m/%d") if text.isascii() else ():
        try:
            return datetime.strptime(text, pattern).date()
        except ValueError:
            pass
    if not text.isascii():
        return None
    if not re.fullmatch(r"\d{4}[-/]\d\d?[-/]\d\d?[ T]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d:?\d\d)?", text):
        return None
    text = re.sub(r"(\.\d{1,6})0*", lambda found: found[1], text.replace("/", "-"))
    text = re.sub(r"^(\d{4})-(\d)-", r"\1-0\2-", text)
    try:
        return datetime.fromisoformat(re.sub(r"^(\d{4}-\d\d)-(\d)([ T])", r"\1-0\2\3", text))
    except ValueError:
        return None


def decimal_type(texts: list[str]) -> str:
    numbers = [Decimal(text).normalize() for text in texts]
    places = max(max(0, -int(n.as_tuple().exponent)) for n in numbers)
    whole = max(max(0, len(n.as_tuple().digits) + int(n.as_tuple().exponent)) if n else 1 for n in numbers)
    whole = max([whole, *(len(text.strip("-")) for text in texts if is_integer(text))])
    return f"DECIMAL({whole + places},{places})" if whole + places <= 38 else "STRING"


def wanted_type(texts: list[str]) -> str:  # one line a type
    """The narrowest type by which every text is read as it is written."""
    numbers = [text for text in texts if is_integer(text) or is_number(text)]
    words = [text for text in texts if text in ("NaN", "nan", "inf", "-inf", "Infinity", "-Infinity")]
    moments = [moment(text) for text in texts]
    if not texts:
        return "STRING"
    if all(map(is_integer, texts)):
        return "BIGINT" if all(-BIG <= int(text) < BIG for text in texts) else decimal_type(texts)
    if numbers and len(numbers) + len(words) == len(texts):
        if all(map(is_exact, numbers)):
            return "DOUBLE"
        return "STRING" if words else decimal_type(numbers)
    if all(text.lower() in ("true", "false") and text in (text.lower(), text.title(), text.upper()) for text in texts):
        return "BOOLEAN"
    if all(found is not None and not isinstance(found, datetime) for found in moments):
        return "DATE"
    zoned = {isinstance(found, datetime) and found.tzinfo is not None for found in moments if found is not None}
    if None in moments or len(zoned) > 1:
        return "STRING"
    return "TIMESTAMP" if zoned == {True} else "TIMESTAMP_NTZ"


def value(text: str, kind: pa.DataType) -> Any:
    """A text as a value of the type."""
    if pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return text.lower() == "true"
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_floating(kind):
        return repr(float(text))
    found = moment(text)
    assert found is not None
    if pa.types.is_timestamp(kind) and not isinstance(found, datetime):
        return datetime(found.year, found.month, found.day)
    return found.astimezone(UTC) if isinstance(found, datetime) and found.tzinfo else found


def plain(found: Any) -> Any:
    return repr(found) if isinstance(found, float) else found


# ------------------------------------------------------------------------------------------------------- CSV

NUMBERS = st.one_of(
    st.integers(-20, 20).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**20), 10**20, places=3).map(str),
    st.sampled_from(
        ["0", "-0", "00", "007", "0.10", ".5", "1.", "+1", "1E5", "1e+5", "1.5e3", "1e400", "1e-400", "1\u0662"]
    ),
    st.sampled_from(
        ["9007199254740993", str(BIG), str(-BIG), str(BIG - 1), "9" * 38, "9" * 39, "1e999999999999999999999"]
    ),
)
MOMENTS = st.one_of(
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)).map(str),
    st.sampled_from(
        ["2015/1/2", "2015/12/31 10:00", "2015/02/30", "2026-02-30", "2026-01-01T10:00", "2026-01-01 24:00"]
    ),
    st.sampled_from(
        ["2026-01-01T10:00:00+02:00", "2026-01-01 10:00:00.1234567", "2026-01-01 10:00:00.1234560Z", "1/2/2015"]
    ),
    st.sampled_from(
        ["2015-06-30 23:59:60", "2015-06-30 10:00:75Z", "2015-06-3\u0660", "2015/6/\u0661", "2015-06-30 10:6\u0660"]
    ),
)
WORDS = st.sampled_from(
    ["true", "False", "TRUE", "tRue", "NaN", "inf", "-Infinity", "NA", "x", " 1", "a,b", 'q"', "1_0", "0x1F"]
)
COLUMNS = st.one_of(
    *(st.lists(st.none() | one, max_size=6) for one in (NUMBERS, MOMENTS, WORDS)),
    *(st.lists(st.none() | one | other, max_size=6) for one, other in ((NUMBERS, WORDS), (MOMENTS, WORDS))),
    st.lists(st.none() | st.integers(0, 99).map(str) | st.floats(-9, 9).map(repr), max_size=6),
    st.lists(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\0")), max_size=6),
)


def written(path: Path, texts: list[str | None]) -> RowFile:
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, quoting=csv.QUOTE_NOTNULL if hasattr(csv, "QUOTE_NOTNULL") else csv.QUOTE_MINIMAL)
        lines.writerow(["n", "v"])
        for number, text in enumerate(texts):
            file.write(f"{number},")
            file.write("" if text is None else '"' + text.replace('"', '""') + '"')
            file.write("\n")
    return RowFile.of(path)


@given(COLUMNS, st.integers(0, 6))
def test_what_is_inferred_of_csv_reads_each_value_as_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    whole = written(folder / "whole.csv", texts)
    found = columns_of([whole]).schema
    given = [text for text in texts if text is not None]
    assert to_sql(found.field("v").type) == wanted_type(given), texts
    rows = arrow_rows(whole.rows(found), found)
    kind = found.field("v").type
    assert [plain(one) for one in rows["v"].to_pylist()] == [None if t is None else value(t, kind) for t in texts]
    parts = [written(folder / "one.csv", texts[:cut]), written(folder / "two.csv", texts[cut:])]
    assert columns_of(parts).schema.field("v").type == kind


def test_columns_are_those_of_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK", 64)
    texts = [*map(str, range(200)), "0.5", None, "007" * 5]
    for count, kind in ((200, pa.int64()), (202, pa.float64()), (203, pa.string())):
        file = written(tmp_path / f"{count}.csv", [*texts[:count]])
        schema = columns_of([file]).schema
        assert schema.field("v").type == kind
        assert arrow_rows(file.rows(schema), schema).num_rows == count


@pytest.mark.few(4)
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_blocks_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, encoding: str) -> None:
    lines = [f'{number},"é{ending}{number}"' for number in range(50)]
    (tmp_path / "rows.csv").write_bytes(ending.join(["n;ä".replace(";", ","), *lines]).encode(encoding))
    file = RowFile.of(tmp_path / "rows.csv", csv_style(encoding="latin-1") if encoding == "latin-1" else None)
    for block in (60, 61, 63, 77, 1000):
        monkeypatch.setattr(csv_files, "_BLOCK", block)
        schema = columns_of([file]).schema
        assert schema.names == ["n", "ä"]
        rows = arrow_rows(file.rows(schema), schema)
        assert rows["n"].to_pylist() == list(range(50))
        assert rows["ä"].to_pylist() == [f"é{ending}{number}" for number in range(50)]


def test_an_error_far_into_a_file_names_its_line_and_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK", 64)
    schema = pa.schema([("n", pa.int64()), ("v", pa.int64())])
    lines = ["n,v", *(f"{number},{number}" for number in range(100))]
    for bad, reason in (("7,8,9", "line 102 has 3 fields"), ("7,x", 'row 101: v: "x" is no BIGINT')):
        (tmp_path / "rows.csv").write_text("\n".join([*lines, bad, "8,8"]))
        with pytest.raises(InvalidRequest, match=reason):
            arrow_rows(RowFile.of(tmp_path / "rows.csv").rows(schema), schema)
    (tmp_path / "rows.csv").write_bytes("\n".join([*lines, "7,\xe9"]).encode("latin-1"))
    with pytest.raises(InvalidRequest, match="line 102 is not utf-8"):
        arrow_rows(RowFile.of(tmp_path / "rows.csv").rows(schema), schema)
    (tmp_path / "rows.csv").write_text("\n".join([*lines, '7,"' + "x" * 500]))
    with pytest.raises(InvalidRequest, match="a row, or a text whose quote is not closed, has more than 64 bytes"):
        columns_of([RowFile.of(tmp_path / "rows.csv")])


HEADS = {
    "semicolon": (b"id;US Gross\n1;2,5\n", ["id", "US Gross"]),
    "tab": (b"id\tname, first\n1\tx\n", ["id", "name, first"]),
    "bar": (b"id|a;b|c\n1|2|3\n", ["id", "a;b", "c"]),
    "one": (b"id\n1\n", ["id"]),
    "sentences": (b"id;text\n1;a, b, c\n2;d\n", ["id", "text"]),
    "blank": (b"\n\nid,v\n1,2\n", ["id", "v"]),
    "a line that looks alike": (b"sep=,id\n;,1\n", ["sep=", "id"]),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_delimiter_is_the_one_that_cuts_the_first_rows_alike(tmp_path: Path, name: str) -> None:
    content, names = HEADS[name]
    (tmp_path / "rows.csv").write_bytes(content)
    assert columns_of([RowFile.of(tmp_path / "rows.csv")]).schema.names == names


@pytest.mark.parametrize("delimiter", [";", ",", "|", "\t"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("line", "encoding"),
    [
        ("sep={}\r\n", "utf-8"),
        ("sep={}\n", "utf-8-sig"),
        ("SEP={}\r", "utf-16"),
        ('"sep={}"\n\n', "utf-8"),
    ],
)
def test_regression_the_first_line_of_excel_names_the_delimiter(
    tmp_path: Path, delimiter: str, known: bool, line: str, encoding: str
) -> None:
    """It was the header: a semicolon's file had one column ``sep=;``, or two without a name."""
    path = tmp_path / "rows.csv"
    text = line + 'id{}text\n1{}a\n2{}"b{}c"\n'
    path.write_bytes(text.replace("{}", delimiter).encode(encoding))
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    for style in (None, csv_style(delimiter), csv_style(null="x")):
        file = RowFile.of(path, style)
        found = arrow_rows(file.rows(schema if known else columns_of([file]).schema), schema)
        assert found.to_pylist() == [{"id": 1, "text": "a"}, {"id": 2, "text": f"b{delimiter}c"}]


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv"])
def test_regression_a_delimiter_against_the_first_line_of_excel_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("sep=;\nid;v\n1;2\n")
    sentence = (
        r"its first line, sep=;, says that the delimiter is ';', and not '\\t': name that one, or remove the line"
    )
    with pytest.raises(InvalidRequest, match=sentence):
        columns_of([RowFile.of(tmp_path / name, csv_style("\t"))])
    assert columns_of([RowFile.of(tmp_path / name, csv_style(";"))]).schema.names == ["id", "v"]


def test_an_error_behind_the_first_line_of_excel_names_the_line_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("sep=;\n\nid;v\n1;2\n1;2;3\n")
    with pytest.raises(InvalidRequest, match="line 5 has 3 fields, and the header names 2 columns"):
        columns_of([RowFile.of(tmp_path / "rows.csv")])


NO_ROWS = {
    "header.csv": b"id,v\n",
    "no end.csv": b"id,v",
    "empty lines.csv": b"id,v\n\n\n",
    "nulls.csv": b"id,v\n,\n,\n",
}


@pytest.mark.parametrize("name", NO_ROWS)
def test_a_column_without_values_is_a_text_with_a_remark(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(NO_ROWS[name])
    found = columns_of([RowFile.of(tmp_path / name)])
    assert found.schema == pa.schema([("id", pa.string()), ("v", pa.string())])
    assert found.remarks == ("id has no value", "v has no value")
    assert arrow_rows(RowFile.of(tmp_path / name).rows(found.schema), found.schema).num_rows == 2 * (
        name == "nulls.csv"
    )


FORMATS = {
    "%d.%m.%Y": (["31.01.2015", "2015-02-01", None], pa.date32(), date(2015, 1, 31)),
    "%m/%d/%Y": (["1/31/2015", "02/01/2015"], pa.date32(), date(2015, 1, 31)),
    "%d.%m.%Y %H:%M": (["31.01.2015 10:30"], pa.timestamp("us"), datetime(2015, 1, 31, 10, 30)),
    "%d.%m.%y": (["31.01.15"], pa.date32(), date(2015, 1, 31)),
    "%Y%m%d": (["20150131", "20150201"], pa.date32(), date(2015, 1, 31)),  # whole numbers without a format
    "%d %b %Y %H:%M:%S %z": (
        ["31 Jan 2015 10:30:00 +0200"],
        pa.timestamp("us", "UTC"),
        datetime(2015, 1, 31, 8, 30, tzinfo=UTC),
    ),
}


@pytest.mark.parametrize(
    "text", ["2015-06-30 23:59:60", "2015-06-30 10:00:75", "1\u0662", "2015/06/3\u0660", "30.06.2015 10:00:60"]
)
def test_regression_what_no_type_reads_as_it_is_written_is_a_text(tmp_path: Path, text: str) -> None:
    written(tmp_path / "rows.csv", [text])
    file = RowFile.of(tmp_path / "rows.csv", csv_style(times=["%d.%m.%Y %H:%M:%S"]))
    assert columns_of([file]).schema.field("v").type == pa.string()


@pytest.mark.parametrize("pattern", FORMATS)
def test_days_and_times_have_the_format_that_is_named(tmp_path: Path, pattern: str) -> None:
    texts, kind, first = FORMATS[pattern]
    written(tmp_path / "rows.csv", [*texts])
    file = RowFile.of(tmp_path / "rows.csv", csv_style(times=[pattern]))
    schema = columns_of([file]).schema
    assert schema.field("v").type == kind
    assert arrow_rows(file.rows(schema), schema)["v"][0].as_py() == first


@pytest.mark.parametrize(
    ("text", "encoding", "reason"),
    [
        ("id,v\n1,2\n", "utf-16-le", "UTF-16 has: name its encoding, such as utf-16-le"),
        ("id,v\n1,2\n", "utf-16-be", "UTF-16 has: name its encoding, such as utf-16-le"),
        ("id,,v\n1,2,3\n", "utf-8", r"rows\.csv cannot be read: its first line has no name for column 2"),
    ],
)
def test_a_first_line_without_names_says_why(tmp_path: Path, text: str, encoding: str, reason: str) -> None:
    (tmp_path / "rows.csv").write_bytes(text.encode(encoding))
    with pytest.raises(InvalidRequest, match=reason):
        columns_of([RowFile.of(tmp_path / "rows.csv")])


def test_numbers_are_days_only_if_all_of_them_have_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK", 64)
    days = ["20150131"] * 20
    for texts, formats, kind in (
        (days, ["%Y%m%d"], pa.date32()),
        ([*days, "20150230"], ["%Y%m%d"], pa.int64()),
        ([*days, "7"], ["%Y%m%d"], pa.int64()),
        ([*days, "1.5"], ["%Y%m%d"], pa.float64()),
        ([*days, "31.01.2015"], ["%Y%m%d", "%d.%m.%Y"], pa.date32()),
        ([*days, "2015-01-31"], ["%Y%m%d"], pa.date32()),
        ([*days, "x"], ["%Y%m%d"], pa.string()),
        (days, [], pa.int64()),
    ):
        written(tmp_path / "rows.csv", texts)
        file = RowFile.of(tmp_path / "rows.csv", csv_style(times=formats))
        found = columns_of([file])
        assert found.schema.field("v").type == kind, texts
        assert arrow_rows(file.rows(found.schema), found.schema).num_rows == len(texts)
        assert any("by the format that you gave" in remark for remark in found.remarks) == (pa.types.is_date(kind))


def test_a_day_in_another_format_is_named_in_the_error(tmp_path: Path) -> None:
    file, schema = written(tmp_path / "rows.csv", ["31.01.2015"]), pa.schema([("n", pa.int64()), ("v", pa.date32())])
    with pytest.raises(InvalidRequest, match=r'row 1: v: "31.01.2015" is no DATE: name its format, such as %d.%m.%Y'):
        arrow_rows(file.rows(schema), schema)
    assert columns_of([file]).remarks == (
        "v has texts such as '31.01.2015': a timestamp format such as %d.%m.%Y makes days of them",
    )
    for pattern, text in (("%d.%m.%Y", "31.01.15"), ("%d.%m.%Y %H:%M:%S%.f", "31.01.2015 10:00:00.1234567")):
        written(tmp_path / "rows.csv", [text])  # the year 15, and a part of a microsecond
        file = RowFile.of(tmp_path / "rows.csv", csv_style(times=[pattern]))
        assert columns_of([file]).schema.field("v").type == pa.string()
    for pattern in ("yyyy-MM-dd", "%Q"):
        with pytest.raises(InvalidRequest, match="is no format of days or times"):
            csv_style(times=[pattern])


@pytest.mark.parametrize("pattern", ["%H:%M", "%d.%m %H:%M", "%Y", "%Y-%m", "%Y %d %a", "%G-%V"])
def test_regression_a_format_that_leaves_the_day_open_is_refused(pattern: str) -> None:
    """Polars takes 1 January of the year 1 for what a format does not say."""
    with pytest.raises(InvalidRequest, match="does not say which day it is"):
        csv_style(times=[pattern])


# ------------------------------------------------------------------------------------------------------ JSON

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=4),
    st.dates().map(str),
    st.datetimes(timezones=st.just(UTC), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)).map(str),
)
ALIKE = st.one_of(
    *(st.lists(st.none() | one, max_size=3) for one in (st.booleans(), st.integers(-9, 9), st.floats(-9, 9))),
    st.lists(SCALARS, max_size=3),
)
MEMBERS = st.recursive(
    SCALARS, lambda inner: ALIKE | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_leaves=5
)
OBJECTS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", 'c"ä', "d"]), MEMBERS, max_size=3), min_size=1, max_size=4
)


def meets(found: Any, given: Any, kind: pa.DataType) -> bool:  # one line a type
    """Whether a value that was read is the one of the file."""
    if given is None:
        return found is None
    if pa.types.is_string(kind):
        return bool(found == given if isinstance(given, str) else json.loads(found) == given)
    if pa.types.is_list(kind):
        return len(found) == len(given) and all(meets(f, g, kind.value_type) for f, g in zip(found, given, strict=True))
    if pa.types.is_struct(kind):
        return given.keys() <= found.keys() and all(meets(found[f.name], given.get(f.name), f.type) for f in kind)
    if isinstance(given, bool) or isinstance(found, bool):
        return found is given
    if isinstance(given, str):
        other = value(given, kind)
        return bool(plain(found) == other)
    return bool(Decimal(repr(found) if isinstance(found, float) else found) == Decimal(repr(given)))


@given(OBJECTS, st.booleans(), st.booleans())
def test_what_is_inferred_of_json_reads_each_value_as_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], array: bool, escaped: bool
) -> None:
    if not any(rows):
        return
    path = tmp_path_factory.mktemp("json") / "rows.json"
    documents = [json.dumps(row, ensure_ascii=escaped) for row in rows]
    path.write_text(json.dumps(rows, ensure_ascii=escaped) if array else "\n".join(documents), encoding="utf-8")
    schema = columns_of([RowFile.of(path)]).schema
    assert schema.names == list(dict.fromkeys(name for row in rows for name in row))
    read = arrow_rows(RowFile.of(path).rows(schema), schema).to_pylist()
    for found, row in zip(read, rows, strict=True):
        assert all(meets(found.get(f.name), row.get(f.name), f.type) for f in schema), (schema, found, row)


def test_members_are_those_of_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": number} for number in range(100)] + [{"id": 0.5, "late": {"x": [1, None, 2.5]}}]
    path = tmp_path / "rows.ndjson"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    for block in (7, 64, 10_000):
        monkeypatch.setattr(json_files, "_BLOCK", block)
        file = RowFile.of(path)
        schema = columns_of([file]).schema
        assert [to_sql(field.type) for field in schema] == ["DOUBLE", "STRUCT<`x`: ARRAY<DOUBLE>>"]
        assert arrow_rows(file.rows(schema), schema).to_pylist()[-1] == rows[-1]
        path.write_text(path.read_text().rstrip() + "\n")
    path.write_text(path.read_text() + "{\n")
    with pytest.raises(InvalidRequest, match="line 102: not JSON"):
        columns_of([RowFile.of(path)])


# ----------------------------------------------------------------------------- Parquet, and several files


def parquet(path: Path, rows: pa.Table) -> RowFile:
    pq.write_table(rows, path)
    return RowFile.of(path)


def test_columns_of_parquet_are_taken_exactly_and_widened_over_files(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("d", pa.decimal128(5, 2)), ("u", pa.uint32())])
    rows = pa.table([pa.array([1], pa.int32()), pa.array([Decimal("1.50")], pa.decimal128(5, 2)), [7]], schema=schema)
    one = parquet(tmp_path / "a.parquet", rows)
    assert columns_of([one]).schema == schema.set(2, pa.field("u", pa.int64()))
    wider = pa.table(
        {"d": pa.array([Decimal("1.505")], pa.decimal128(7, 3)), "id": [2**40], "u": pa.array([8], pa.uint32())}
    )
    both = columns_of([one, parquet(tmp_path / "b.parquet", wider)]).schema
    assert both == pa.schema([("id", pa.int64()), ("d", pa.decimal128(7, 3)), ("u", pa.int64())])
    other = parquet(tmp_path / "c.parquet", pa.table({"id": ["x"], "d": [1.5], "u": [1]}))
    with pytest.raises(InvalidRequest, match=r"column 'id' is INT in .*a.parquet and STRING in .*c.parquet"):
        columns_of([one, other])


def test_files_with_other_columns_are_named(tmp_path: Path) -> None:
    for name, text in (
        ("a.csv", "id,name\n1,x\n"),
        ("b.csv", "NAME;id\ny;2\n"),
        ("c.csv", "id,nmae\n"),
        ("d.csv", "id\n3\n"),
    ):
        (tmp_path / name).write_text(text)
    a, b, c, d = (RowFile.of(tmp_path / f"{name}.csv") for name in "abcd")
    assert columns_of([a, b]).schema == pa.schema([("id", pa.int64()), ("name", pa.string())])
    with pytest.raises(
        InvalidRequest, match=r"c.csv has a column 'nmae' \(did you mean 'name'\?\), which .*a.csv lacks"
    ):
        columns_of([a, c])
    with pytest.raises(InvalidRequest, match=r"d.csv lacks the column 'name' of .*a.csv"):
        columns_of([a, d])
    (tmp_path / "rows.json").write_text('{"id": 1}')
    with pytest.raises(InvalidRequest, match="of several kinds"):
        columns_of([a, RowFile.of(tmp_path / "rows.json")])


def test_chosen_columns_take_the_place_of_what_is_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price,when\n1,2.50,x\n")
    found = columns_of([RowFile.of(tmp_path / "a.csv")], parse_columns("price DECIMAL(9,2) NOT NULL"))
    assert found.schema.field("price") == pa.field("price", pa.decimal128(9, 2), nullable=False)
    with pytest.raises(InvalidRequest, match=r"there is no column 'prize' \(did you mean 'price'\?\)"):
        columns_of([RowFile.of(tmp_path / "a.csv")], parse_columns("prize INT"))


def test_times_that_are_at_the_ends_of_the_range_stay_texts(tmp_path: Path) -> None:
    edge = str(datetime(1, 1, 1, tzinfo=UTC) + timedelta(hours=1))
    file = written(tmp_path / "rows.csv", [edge.replace("+00:00", "+02:00")])
    assert columns_of([file]).schema.field("v").type == pa.string()

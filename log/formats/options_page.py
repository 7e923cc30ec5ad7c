"""Draws the tables of options and metadata in FORMATS.md: ``python -m log.formats.options_page log/FORMATS.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from filestore.model.option_values import OneOf, Option
from filestore.model.types import to_sql
from log.formats import canal_json, debezium_json
from log.formats.options import FORMAT_OPTIONS

__all__ = ["page"]

_BEGIN, _END = "<!-- drawn from the code -->\n", "<!-- end -->\n"
_METADATA: Mapping[str, Mapping[str, pa.DataType]] = {
    "debezium-json": debezium_json.METADATA,
    "canal-json": canal_json.METADATA,
}


def page() -> str:
    """The part of the page that is drawn, with its marks."""
    return _BEGIN + "\n".join([*_lines(), ""]) + _END


def _lines() -> Iterator[str]:
    yield "| option | type | default | what it does |"
    yield "|---|---|---|---|"
    for name, options in FORMAT_OPTIONS.items():
        for option in options:
            default = "" if option.default is None else f"`{option.default}`"
            yield f"| `{name}.{option.name}` | {_kind(option)} | {default} | {option.doc} |"
    yield ""
    yield "| metadata of | key | type |"
    yield "|---|---|---|"
    for name, keys in _METADATA.items():
        yield from (f"| `{name}` | `{key}` | {_type(kind)} |" for key, kind in keys.items())


def _kind(option: Option) -> str:
    if isinstance(option.parse, OneOf):
        return " or ".join(f"`{choice}`" for choice in option.parse.choices)
    return option.kind


def _type(kind: pa.DataType) -> str:
    return "TIMESTAMP_LTZ(3)" if pa.types.is_timestamp(kind) else to_sql(kind)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    before, _, rest = file.read_text().partition(_BEGIN)
    file.write_text(before + page() + rest.partition(_END)[2])

"""Draws the tables of options and metadata in the pages: ``python -m log.connector.pages``. A test compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from filestore.model.option_values import OneOf, Option
from filestore.model.types import to_sql
from log.connector.formats import canal
from log.connector.formats.debezium import format as debezium
from log.connector.formats.options import FORMAT_OPTIONS
from log.connector.options import CONNECTOR_OPTIONS

__all__ = ["PAGES"]

_BEGIN, _END = "<!-- drawn from the code -->\n", "<!-- end -->\n"
_METADATA: Mapping[str, Mapping[str, pa.DataType]] = {
    "debezium-json": debezium.METADATA,
    "canal-json": canal.METADATA,
}


def _connector() -> Iterator[str]:
    yield from _options({option.name: option for option in CONNECTOR_OPTIONS.values()})


def _formats() -> Iterator[str]:
    yield from _options({f"{name}.{o.name}": o for name, options in FORMAT_OPTIONS.items() for o in options})
    yield ""
    yield "| metadata of | key | type |"
    yield "|---|---|---|"
    for name, keys in _METADATA.items():
        yield from (f"| `{name}` | `{key}` | {_type(kind)} |" for key, kind in keys.items())


def _options(options: Mapping[str, Option]) -> Iterator[str]:
    yield "| option | type | default | what it does |"
    yield "|---|---|---|---|"
    for name, option in options.items():
        default = "" if option.default is None else f"`{option.default}`"
        yield f"| `{name}` | {_kind(option)} | {default} | {option.doc} |"


def _kind(option: Option) -> str:
    if isinstance(option.parse, OneOf):
        formats = option.parse.choices == tuple(FORMAT_OPTIONS)
        return "a format" if formats else " or ".join(f"`{choice}`" for choice in option.parse.choices)
    return option.kind


def _type(kind: pa.DataType) -> str:
    return "TIMESTAMP_LTZ(3)" if pa.types.is_timestamp(kind) else to_sql(kind)


def _drawn(lines: Iterator[str]) -> str:
    return _BEGIN + "\n".join([*lines, ""]) + _END


PAGES: Mapping[str, str] = {"CONNECTORS.md": _drawn(_connector()), "FORMATS.md": _drawn(_formats())}
"""The part of each page that is drawn, with its marks."""


if __name__ == "__main__":
    for name, drawn in PAGES.items():
        file = Path(__file__).with_name(name)
        before, _, rest = file.read_text().partition(_BEGIN)
        file.write_text(before + drawn + rest.partition(_END)[2])

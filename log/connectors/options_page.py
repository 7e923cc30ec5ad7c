"""Draws the table of options in CONNECTORS.md: ``python -m log.connectors.options_page log/CONNECTORS.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from filestore.model.option_values import OneOf, Option
from log.connectors.options import CONNECTOR_OPTIONS
from log.formats.options import FORMAT_OPTIONS

__all__ = ["page"]

_BEGIN, _END = "<!-- drawn from the code -->\n", "<!-- end -->\n"


def page() -> str:
    """The part of the page that is drawn, with its marks."""
    return _BEGIN + "\n".join([*_lines(), ""]) + _END


def _lines() -> Iterator[str]:
    yield "| option | type | default | what it does |"
    yield "|---|---|---|---|"
    for option in CONNECTOR_OPTIONS.values():
        default = "" if option.default is None else f"`{option.default}`"
        yield f"| `{option.name}` | {_kind(option)} | {default} | {option.doc} |"


def _kind(option: Option) -> str:
    if isinstance(option.parse, OneOf):
        formats = option.parse.choices == tuple(FORMAT_OPTIONS)
        return "a format" if formats else " or ".join(f"`{choice}`" for choice in option.parse.choices)
    return option.kind


if __name__ == "__main__":
    file = Path(sys.argv[1])
    before, _, rest = file.read_text().partition(_BEGIN)
    file.write_text(before + page() + rest.partition(_END)[2])

"""The options of formats: names, types, defaults and meanings, by format.

Names are Flink's. In a table's options they begin with the format's name, and may have ``key.`` or ``value.`` before
it: ``value.json.timestamp-format.standard`` is one of the value's format alone.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.option_values import Option, any_text, flag, one_of, some_text
from log.connector.formats.format import Role

__all__ = ["FORMAT_OPTIONS", "parse_options", "select_options"]


def _character(text: str) -> str:
    """One character; a backslash and a letter for those that cannot be seen."""
    text = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}.get(text, text)
    if len(text) != 1 or text in "\r\n" or ord(text) > 0x7F:
        raise ValueError("one ASCII character that ends no line, such as ';' or '\\t'")
    return text


def _charset(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except LookupError as error:
        raise ValueError("the name of a charset such as 'UTF-8' or 'ISO-8859-1'") from error


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return text


_TIMESTAMPS = Option(
    "timestamp-format.standard",
    "enum",
    one_of("SQL", "ISO-8601"),
    "SQL",
    "How timestamps are written: `2020-12-30 12:13:14.123000`, or with `T` between date and time; TIMESTAMP with `Z` "
    "behind. Either is read, also with another offset.",
)
_JSON_WRITING = (
    _TIMESTAMPS,
    Option(
        "encode.decimal-as-plain-number",
        "boolean",
        flag,
        "false",
        "Decimals are written without an exponent. They are anyway; the option is there for tables that have it.",
    ),
    Option(
        "encode.ignore-null-fields",
        "boolean",
        flag,
        "false",
        "Members that are null are left out, in STRUCTs too.",
    ),
    Option(
        "map-null-key.mode",
        "enum",
        one_of("FAIL", "DROP", "LITERAL"),
        "FAIL",
        "What becomes of a MAP's null keys. A MAP of a table has none, so this changes nothing.",
    ),
    Option("map-null-key.literal", "text", any_text, "null", "With mode LITERAL: what stands for a null key."),
)

_LEGACY = "timestamp_mapping.legacy"

FORMAT_OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "json": (
        Option(
            "fail-on-missing-field",
            "boolean",
            flag,
            "false",
            "A message that lacks a column's member is malformed; otherwise the column is null.",
        ),
        *_JSON_WRITING,
    ),
    "debezium-json": (
        Option(
            "schema-include",
            "boolean",
            flag,
            "false",
            'Messages are `{"schema": …, "payload": …}`, as Kafka Connect writes them with `schemas.enable`.',
        ),
        *_JSON_WRITING,
    ),
    "canal-json": (
        Option(
            "database.include",
            "text",
            _pattern,
            None,
            "Only changes whose whole database name matches this regular expression are read.",
        ),
        Option("table.include", "text", _pattern, None, "The same for the table's name."),
        *_JSON_WRITING,
    ),
    "csv": (
        Option("field-delimiter", "character", _character, ",", "Between fields; `\\t` is the tabulator."),
        Option("quote-character", "character", _character, '"', "Around fields that need it."),
        Option("disable-quote-character", "boolean", flag, "false", "Quotes are characters like others."),
        Option("allow-comments", "boolean", flag, "false", "Messages that begin with `#` have no rows."),
        Option(
            "array-element-delimiter",
            "text",
            some_text,
            ";",
            "Between the elements of an ARRAY or STRUCT.",
        ),
        Option(
            "escape-character",
            "character",
            _character,
            None,
            "Before characters that are meant as themselves; default: a quote in quotes is doubled.",
        ),
        Option(
            "null-literal",
            "text",
            some_text,
            None,
            "How nulls are written; default: as nothing, while an empty text is in quotes.",
        ),
    ),
    "avro": (
        Option(
            _LEGACY,
            "boolean",
            flag,
            None,
            "Whether timestamps are milliseconds, as Flink writes them unless it has `false` there; with `false` they "
            "are microseconds, as Flink's TIMESTAMP(6) then is. Required where columns have timestamps.",
        ),
    ),
    "avro-confluent": (
        Option(
            "url",
            "text",
            some_text,
            None,
            "The registry's URL, or several separated by commas. Required. Its schemas may refer to others.",
        ),
        Option(
            "subject",
            "text",
            some_text,
            None,
            "Under which the columns' schema is registered; default: `<topic>-key` or `<topic>-value`.",
        ),
        Option(
            _LEGACY,
            "boolean",
            flag,
            "false",
            "Whether timestamps are written as `timestamp-millis`, which Flink expects unless it has `false` there. "
            "What is read depends on the messages' own schema alone.",
        ),
        Option("basic-auth.user-info", "text", some_text, None, "`user:password` for the registry."),
        Option("bearer-auth.token", "text", some_text, None, "A token for the registry."),
        Option("ssl.ca.location", "text", some_text, None, "A file of certificates (PEM) that sign the registry's."),
    ),
    "raw": (
        Option("charset", "text", _charset, "UTF-8", "The spelling of a STRING."),
        Option(
            "endianness",
            "enum",
            one_of("big-endian", "little-endian"),
            "big-endian",
            "Whether numbers begin with their highest byte.",
        ),
    ),
}


def select_options(options: Mapping[str, str], name: str, role: Role) -> dict[str, str]:
    """Selects the options of one format from a table's options, by their names without the format's.

    What is said for the role alone, as ``key.json.…``, goes before ``json.…``.
    """
    chosen: dict[str, str] = {}
    for prefix in (f"{name}.", f"{role}.{name}."):
        chosen |= {key.removeprefix(prefix): text for key, text in options.items() if key.startswith(prefix)}
    return chosen


def parse_options(name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Parses a format's options, and adds defaults.

    Args:
        name: The format.
        given: Texts by the options' names without the format's.

    Raises:
        InvalidRequest: ``unknown-option`` or ``invalid-option``.
    """
    known = {option.name: option for option in FORMAT_OPTIONS[name]}
    for key in given:
        if key not in known:
            raise InvalidRequest(f"unknown option {name}.{key}: {_advice(name, key, known)}", code="unknown-option")
    return {key: _parsed(name, option, given.get(key, option.default)) for key, option in known.items()}


def _advice(name: str, key: str, known: Mapping[str, Option]) -> str:
    if key == "ignore-parse-errors":
        return "scan.malformed-records says what becomes of malformed records: fail, skip or dead-letter"
    return f"{name} has {', '.join(f'{name}.{n}' for n in known)}"


def _parsed(name: str, option: Option, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            f"option {name}.{option.name} = {text!r} should be {error}", code="invalid-option"
        ) from error

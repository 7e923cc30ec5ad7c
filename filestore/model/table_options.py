"""The options of one table: checked against `filestore.model.options`, and parsed on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from filestore.errors import Corrupt, InvalidRequest
from filestore.model.field_options import FIELD_OPTIONS, FIELD_PREFIX, SEQUENCE_GROUP
from filestore.model.names import unquoted
from filestore.model.option_values import Option, column_names
from filestore.model.options import OPTIONS, PREFIXES
from filestore.model.text import meant
from filestore.secrets import shown

__all__ = ["TableOptions"]


@dataclass(frozen=True, slots=True, repr=False)
class TableOptions:
    """The checked options of a table. Defaults are not stored, so a later version's default applies to it."""

    given: tuple[tuple[str, str], ...] = ()
    _texts: dict[str, str] = field(init=False, repr=False, compare=False, hash=False)
    _parsed: dict[str, Any] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Keeps texts and values by name: a wide table has an option for each column, and each file asks for ten."""
        object.__setattr__(self, "_texts", dict(self.given))
        object.__setattr__(self, "_parsed", {})

    def __repr__(self) -> str:
        """Shows the options that are given, with stars for passwords."""
        return f"TableOptions({shown(self._texts)})"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> TableOptions:
        """Checks names and values.

        Raises:
            InvalidRequest: an unknown name (``unknown-option``, with the nearest known one) or an invalid value
                (``bad-option-value``, with what is expected).
        """
        for name, value in given.items():
            _check(name, str(value))
        _refuse_repeated(given)
        return cls(tuple(sorted((name, str(value)) for name, value in given.items())))

    def __getitem__(self, name: str) -> Any:
        """Returns the parsed value, or the parsed default (None if there is none).

        Raises:
            Corrupt: ``bad-stored-option``: a stored value is none that `parse` would have taken.
        """
        if name not in self._parsed:
            self._parsed[name] = self._value(name)
        return self._parsed[name]

    def _value(self, name: str) -> Any:
        option = OPTIONS[name]
        text = self._texts.get(name, option.default)
        try:
            return None if text is None else option.parse(text)
        except ValueError as error:
            raise Corrupt(
                f"the option {name} is stored as {text!r}, and must be {error}: restore what has it, the table's files "
                "or the catalog's database",
                code="bad-stored-option",
            ) from error

    def milliseconds(self, name: str) -> int:
        """Returns a duration that has a default, in milliseconds."""
        return int(self[name] // timedelta(milliseconds=1))

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Returns the pass-through options with a prefix, by the rest of their names."""
        return {name.removeprefix(prefix): value for name, value in self.given if name.startswith(prefix)}

    def of_fields(self) -> dict[str, dict[str, Any]]:
        """Returns the parsed options of each column, by the option's name; sequence groups are left out."""
        found: dict[str, dict[str, Any]] = {}
        for name, option, text in self._field_options():
            if option.name != SEQUENCE_GROUP:
                found.setdefault(name, {})[option.name] = option.parse(text)
        return found

    def field_columns(self) -> list[str]:
        """Returns the columns that have options of their own; sequence groups are left out."""
        return [name for name, option, _ in self._field_options() if option.name != SEQUENCE_GROUP]

    def sequence_groups(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Returns each group's sequence columns and its members."""
        return [
            (column_names(name), option.parse(text))
            for name, option, text in self._field_options()
            if option.name == SEQUENCE_GROUP
        ]

    def _field_options(self) -> Iterator[tuple[str, Option, str]]:
        for name, text in self.given:
            if (found := _field_option(name)) is not None:
                yield (*found, text)

    def as_dict(self) -> dict[str, str]:
        """Returns the given options by name."""
        return dict(self.given)


def _field_option(name: str) -> tuple[str, Option] | None:
    """Splits ``fields.<column>.<option>`` into the column (for a sequence group: columns) and the option."""
    if not name.startswith(FIELD_PREFIX) or name in OPTIONS:
        return None
    column, _, last = name.removeprefix(FIELD_PREFIX).rpartition(".")
    if not column or last not in FIELD_OPTIONS:
        return None
    return (column if last == SEQUENCE_GROUP else unquoted(column)), FIELD_OPTIONS[last]


def _refuse_repeated(given: Mapping[str, str]) -> None:
    """Refuses an option of a column that is there with backticks around the column's name and without."""
    spelled: dict[tuple[str, str], str] = {}
    for name in given:
        if (found := _field_option(name)) is None:
            continue
        other = spelled.setdefault((found[0], found[1].name), name)
        if other != name:
            raise InvalidRequest(
                f"options {other!r} and {name!r} are one option, given twice: leave one of them out",
                code="bad-option-value",
            )


def _refuse_unknown_field_option(name: str) -> None:
    column, _, last = name.removeprefix(FIELD_PREFIX).rpartition(".")
    if name.startswith(FIELD_PREFIX) and column:
        near = meant(last, FIELD_OPTIONS)
        hint = f"did you mean 'fields.{column}.{near}'?" if near else f"known: {', '.join(FIELD_OPTIONS)}"
        raise InvalidRequest(f"unknown option {name!r} of column {column!r}: {hint}", code="unknown-option")


def _check(name: str, value: str) -> None:
    if any(name.startswith(prefix) and name != prefix for prefix in PREFIXES):
        return
    of_column = _field_option(name)
    option = of_column[1] if of_column else OPTIONS.get(name)
    if option is None:
        _refuse_unknown_field_option(name)
        near = meant(name, OPTIONS)
        hint = f"did you mean {near!r}?" if near else f"known options: {', '.join(OPTIONS)}"
        raise InvalidRequest(f"unknown option {name!r}: {hint}", code="unknown-option")
    try:
        option.parse(value)
    except ValueError as error:
        raise InvalidRequest(
            f"option {name!r} has value {value!r}; it takes {error}", code="bad-option-value"
        ) from error

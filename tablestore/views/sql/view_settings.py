"""Settings of Spark by which the text of a query means something else than this package reads in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["in_utc", "other_meaning", "other_values", "settings_of"]

_SETTING = "view.setting."
_USUAL = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.groupByAliases": "true",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.legacy.bangEqualsNot": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.parser.havingWithoutGroupByAsWhere": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}
"""The values by which a query is read here: Spark's defaults."""


def settings_of(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of Spark among the options of a view."""
    return {name.removeprefix(_SETTING): value for name, value in options.items() if name.startswith(_SETTING)}


def other_meaning(settings: Mapping[str, str]) -> str | None:
    """Returns why a query with these settings cannot be taken apart, as a clause; None if it can."""
    for name, usual in _USUAL.items():
        value = settings.get(name, usual)
        if value.strip().lower() != usual:
            return f"it runs with {name} = {value}, by which its text has another meaning"
    return None


_LOCAL = _USUAL | {"spark.sql.ansi.enabled": "true"}
_ZONE = "spark.sql.session.timeZone"
_UTC = ("utc", "etc/utc", "z")
_WITHOUT_EFFECT = (
    _ZONE,  # what depends on it is computed in UTC alone
    "spark.sql.binaryOutputStyle",  # of BINARY as a text, which nothing becomes here; the spark-sql shell sets it
)
"""Settings on which no value depends that is computed without Spark."""


def in_utc(settings: Mapping[str, str]) -> bool:
    """Returns whether the days and hours of moments are those of UTC."""
    return settings.get(_ZONE, "").strip().lower() in _UTC


def other_values(settings: Mapping[str, str]) -> str | None:
    """Returns a setting by which a query may have other values than those that are computed without Spark, if any."""
    for name, value in settings.items():
        if name not in _WITHOUT_EFFECT and value.strip().lower() != _LOCAL.get(name):
            return f"{name} = {value}"
    return None

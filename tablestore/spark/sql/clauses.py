"""Refuses clauses of CREATE TABLE and ALTER TABLE that a table would not keep. Spark makes properties of some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from filestore.errors import Unsupported
from tablestore.spark.sql.requests import PROVIDERS, wrong_provider

__all__ = ["constraint_refused", "options_in", "refuse_clauses"]

_HIVE = {
    "hive.stored-as": "STORED AS",
    "hive.input-format": "INPUTFORMAT",
    "hive.output-format": "OUTPUTFORMAT",
    "hive.serde": "SERDE",
}
"""The properties that Spark makes of clauses about files of Hive."""
_COLLATION = "collation"
_PLAIN = "UTF8_BINARY"


_OF_DELTA = "delta."
_CHANGES = "delta.enablechangedatafeed"


def _refuse_delta_properties(properties: Iterable[str]) -> None:
    """Refuses properties of Delta; `Unsupported` (``delta-property``) says what has their place."""
    for name in properties:
        if name.lower() == _CHANGES:
            raise Unsupported(
                f"leave {name} out: CHANGES FROM VERSION and table_changes() read what each version changed, and the "
                "option changelog-producer ('lookup') also writes the rows before each update into Delta's change feed",
                code="delta-property",
            )
        if name.lower().startswith(_OF_DELTA):
            raise Unsupported(
                f"leave {name} out: features of Delta follow from the table's own options, such as bucket, "
                "target-file-size and snapshot.time-retained (filestore/OPTIONS.md)",
                code="delta-property",
            )


def refuse_clauses(properties: Mapping[str, str], default_source: str | None = None) -> None:
    """Refuses what such a property says.

    Args:
        properties: The properties of a statement.
        default_source: The format that Spark names if the statement names none.

    Raises:
        Unsupported: ``table-location``, ``provider``, ``string-type``, ``delta-property``.
    """
    _refuse_delta_properties(properties)
    if "location" in properties or properties.get("external") == "true":
        clause = "LOCATION" if "location" in properties else "EXTERNAL"
        raise Unsupported(f"a managed table is where its warehouse is: leave {clause} out", code="table-location")
    for name, clause in _HIVE.items():
        if name in properties:
            raise Unsupported(
                f"tables of this catalog are Delta tables, whose files are Parquet: leave {clause} {properties[name]} "
                "out",
                code="provider",
            )
    provider = properties.get("provider", "tablestore")
    if provider.lower() not in (*PROVIDERS, (default_source or "").lower()):
        raise wrong_provider(provider)
    if properties.get(_COLLATION, _PLAIN) != _PLAIN:
        raise Unsupported(
            f"tables keep no collations of strings: leave DEFAULT COLLATION {properties[_COLLATION]} out",
            code="string-type",
        )


def options_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties without the collation that all tables have."""
    return {name: value for name, value in properties.items() if (name, value) != (_COLLATION, _PLAIN)}


def constraint_refused(what: str) -> Unsupported:
    """Returns the error for a constraint that is added or dropped."""
    return Unsupported(
        f"{what}: a table has no constraint but the PRIMARY KEY that it was created with, and keeps that; for another "
        "key create a new table, and write the rows into it",
        code="constraint",
    )

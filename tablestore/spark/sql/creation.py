"""The statement from which a materialized view can be made again, for ``SHOW CREATE TABLE``. Pure."""

from __future__ import annotations

import re

from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from tablestore.spark.sql.names import literal

__all__ = ["creation_of"]

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUERY = "view.query"
_ENGINE = "view.engine"
_OF_BUCKETS = ("bucket", "bucket-key")


def creation_of(catalog: str, name: str, definition: TableDefinition) -> str:
    """Returns ``CREATE MATERIALIZED VIEW`` with the query, key, comment and options of a view.

    Options that follow from the query are left out. Settings of Spark with which the query runs are options, so that
    the new view has the same rows, whoever creates it.

    Args:
        catalog: The catalog's name in the session.
        name: ``database.table``.
        definition: The definition of the view's table.
    """
    options = definition.options.as_dict()
    follows = {_QUERY, _ENGINE, *(_OF_BUCKETS if _ENGINE not in options else ())}
    shown = [f"  {literal(key)} = {literal(text)}" for key, text in sorted(options.items()) if key not in follows]
    parts = [
        f"CREATE MATERIALIZED VIEW {'.'.join(map(_shown, [catalog, *name.split('.')]))}",
        f"PRIMARY KEY ({', '.join(map(_shown, definition.primary_key))})" if definition.primary_key else None,
        None if definition.comment is None else f"COMMENT {literal(definition.comment)}",
        "TBLPROPERTIES (\n" + ",\n".join(shown) + ")" if shown else None,
        f"AS {options[_QUERY]}",
    ]
    return "\n".join(part for part in parts if part is not None) + "\n"


def _shown(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)

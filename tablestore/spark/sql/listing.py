"""The tables and the views of a database, for ``SHOW TABLES`` and its kin; each may have a text about it.

Spark's own ``SHOW TABLE EXTENDED`` leaves out the views of such a catalog. dbt and others learn from it what there is,
and would create a table where a view is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark.sql.types import StructType

from filestore.errors import NotFound
from filestore.model.definition import TableDefinition
from tablestore.kafka_table import KafkaTable
from tablestore.spark.sql.columns import schema_to_spark
from tablestore.spark.sql.databases import list_tables, list_views
from tablestore.spark.sql.requests import Request
from tablestore.spark.sql.topics import described_topic
from tablestore.store import Store

__all__ = ["list_relations", "table_properties"]

_DELTA = "delta"
"""The provider of our tables: the format of their files, by which programs know that they have MERGE (decision 107)."""


def list_relations(store: Store, request: Request) -> list[list[str]]:
    """Returns the names of tables and views in a database, sorted, each with a text if it shall be described.

    Args:
        store: The store.
        request: ``database``; ``pattern``: names, in which ``*`` stands for any text, ``|`` is between several, and
            upper and lower case are the same; ``only_views``; ``described``.

    Raises:
        NotFound: ``database-not-found``.
    """
    parts = (re.escape(part.strip()).replace(r"\*", ".*") for part in request["pattern"].split("|"))
    fitting = re.compile("|".join(f"(?:{part})" for part in parts), re.IGNORECASE)
    describe = dict.fromkeys([] if request["only_views"] else list_tables(store, request), _table)
    describe |= dict.fromkeys(list_views(store, request), _view)
    names = [name for name in sorted(describe) if fitting.fullmatch(name)]
    if not request["described"]:
        return [[name] for name in names]
    return [[name, text] for name in names if (text := _text(store, request, name, describe[name])) is not None]


def table_properties(definition: TableDefinition) -> dict[str, str]:
    """Returns what Spark shows as the properties of a managed table."""
    comment = {} if definition.comment is None else {"comment": definition.comment}
    return {"provider": _DELTA, **definition.options.as_dict(), **comment}


def _text(store: Store, request: Request, name: str, describe: Callable[[Store, str], list[str]]) -> str | None:
    """Returns the text in the form that Spark gives it; None if the table or view was dropped meanwhile."""
    try:
        lines = describe(store, f"{request['database']}.{name}")
    except NotFound:
        return None
    of_all = [f"Catalog: {request['catalog']}", f"Namespace: {request['database']}", f"Table: {name}"]
    return "\n".join([*of_all, *lines]) + "\n"


def _table(store: Store, name: str) -> list[str]:
    table = store.any_table(name)
    if isinstance(table, KafkaTable):
        described = described_topic(table)
        lines = _known("MANAGED", described["properties"])
        return [*lines, _schema(described["schema"])]
    definition = table.definition
    lines = _known("MANAGED", table_properties(definition))
    if definition.partition_by:
        lines += [
            "Partition Provider: Catalog",
            f"Partition Columns: {_list(f'`{c}`' for c in definition.partition_by)}",
        ]
    return [*lines, _schema(schema_to_spark(definition.schema))]


def _view(store: Store, name: str) -> list[str]:
    view = store.view(name)
    comment = {} if view.comment is None else {"comment": view.comment}
    return [*_known("VIEW", {**view.properties, **comment}), f"View Text: {view.query}", _schema(view.columns)]


def _known(kind: str, properties: Mapping[str, str]) -> list[str]:
    left = dict(properties)
    comment, provider = left.pop("comment", None), left.pop("provider", None)
    lines = [f"Type: {kind}"]
    lines += [f"Comment: {comment}"] if comment is not None else []
    lines += [f"Provider: {provider}"] if provider is not None else []
    return [*lines, f"Table Properties: {_list(f'{key}={left[key]}' for key in sorted(left))}"]


def _list(texts: Iterator[str] | Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _schema(text: str) -> str:
    return f"Schema: {StructType.fromJson(json.loads(text)).treeString()}"

"""``SHOW TABLE EXTENDED``: the tables and the views of a database, each with a text about it.

Spark's own statement leaves out the views of such a catalog. dbt and others learn from it what there is, and would
create a table where a view is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql.types import StructType

from filestore.errors import NotFound
from filestore.model.definition import TableDefinition
from tablestore.kafka_table import KafkaTable
from tablestore.spark.sql.columns import schema_to_spark
from tablestore.spark.sql.databases import list_tables, list_views
from tablestore.spark.sql.topics import described_topic
from tablestore.store import Store

__all__ = ["listed", "table_properties"]

_DELTA = "delta"
"""The provider of our tables: the format of their files, by which programs know that they have MERGE (decision 107)."""

Row = tuple[str, str, bool, str]


def table_properties(definition: TableDefinition) -> dict[str, str]:
    """Returns what Spark shows as the properties of a managed table."""
    comment = {} if definition.comment is None else {"comment": definition.comment}
    return {"provider": _DELTA, **definition.options.as_dict(), **comment}


def listed(store: Store, catalog: str, database: str, pattern: str) -> Iterator[Row]:
    """Lists the tables and views with such names, sorted, with the text in the form that Spark gives it.

    Args:
        store: The store.
        catalog: Its name in the session.
        database: The database.
        pattern: Names; ``*`` stands for any text, and ``|`` is between several. Upper and lower case are the same.

    Raises:
        NotFound: There is no such database; the message has Spark's own code, by which programs know it.
    """
    parts = (re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|"))
    wanted = re.compile("|".join(parts), re.IGNORECASE)
    asked = {"database": database}
    try:
        views = list_views(store, asked)
        names = [name for name in sorted([*list_tables(store, asked), *views]) if wanted.fullmatch(name)]
    except NotFound as error:
        message = f"[SCHEMA_NOT_FOUND] The schema `{catalog}`.`{database}` cannot be found."
        raise NotFound(message, code=error.code) from error
    for name in names:
        describe = _view if name in views else _table
        try:
            lines = describe(store, f"{database}.{name}")
        except NotFound:  # dropped meanwhile
            continue
        of_all = [f"Catalog: {catalog}", f"Namespace: {database}", f"Table: {name}"]
        yield database, name, False, "\n".join([*of_all, *lines]) + "\n"


def _table(store: Store, name: str) -> list[str]:
    table = store.table(name)
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

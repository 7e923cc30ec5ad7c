"""Checks ``df.write.mode("overwrite").saveAsTable(t)`` of a table that exists: only its rows are replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from filestore.errors import InvalidRequest, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.kafka_table import KafkaTable
from tablestore.spark.sql.clauses import refuse_clauses
from tablestore.spark.sql.requests import Request, name_of, same_table, topic_stays
from tablestore.store import Store

__all__ = ["check_saved_rows"]

_SCHEMA = "overwriteschema"
_WHERE = "replacewhere"


def check_saved_rows(store: Store, request: Request) -> None:
    """Refuses what would change the table: ``SavedRows.java`` replaces its rows then.

    Raises:
        InvalidRequest: ``other-definition``: other columns or partition columns, or a comment.
        Unsupported: ``overwrite-schema``, ``unknown-option``, ``connector-table``; as `refuse_clauses`.
    """
    refuse_clauses(request["properties"], request["default_source"])
    table = same_table(store, request)
    name = name_of(request)
    if isinstance(table, KafkaTable):
        raise topic_stays(name)
    definition = table.definition
    if _SCHEMA in {option.lower() for option in request["options"]}:
        raise Unsupported(
            f"saveAsTable with overwriteSchema would make another table of {name}: leave the option out to replace its "
            f"rows. {_anew(definition)}",
            code="overwrite-schema",
        )
    if _WHERE in {option.lower() for option in request["options"]}:
        raise Unsupported(
            f"saveAsTable has no option replaceWhere: df.writeTo('{name}').overwrite(condition), with equalities of "
            "partition columns, replaces these partitions, and .overwritePartitions() those that the rows have",
            code="unknown-option",
        )
    if (what := _difference(request, definition)) is not None:
        raise InvalidRequest(
            f"saveAsTable with mode overwrite replaces the rows of {name} and keeps its columns, key and options, but "
            f"{what}. {_anew(definition)}",
            code="other-definition",
        )


def _anew(definition: TableDefinition) -> str:
    """Says how a new table is put in the place of this one."""
    key = f".tableProperty('primary-key', '{', '.join(definition.primary_key)}')" if definition.primary_key else ""
    keeps = ", with its key" if key else ""
    return f"For a new table in its place{keeps} write df.writeTo(…){key}.createOrReplace()"


def _difference(request: Request, definition: TableDefinition) -> str | None:
    """Returns what a DataFrame has otherwise than the table; None if nothing. Pure."""
    case: Callable[[str], str] = str if request["case_sensitive"] else str.lower
    given, stored = ([case(name) for name in names] for names in (request["columns"], definition.schema.names))
    if more := _without(request["columns"], stored, case):
        return f"the DataFrame has {more}, which the table has not: leave it out, or ALTER TABLE … ADD COLUMN first"
    if missing := _without(definition.schema.names, given, case):
        return f"the DataFrame lacks {missing}: add it, with null if there is no value"
    partitions = [case(name) for name in request["partition_by"]]
    if partitions and partitions != [case(name) for name in definition.partition_by]:
        own = (
            f"those of the table are {', '.join(definition.partition_by)}" if definition.partition_by else "it has none"
        )
        return f"partitionBy says {', '.join(request['partition_by'])}, and {own}: leave it out"
    if "comment" in request["properties"]:
        return "there is a comment: leave it out, or COMMENT ON TABLE"
    return None


def _without(names: Sequence[str], others: Sequence[str], case: Callable[[str], str]) -> str | None:
    """Names the first column that is not among others."""
    return next((f"column {name!r}" for name in names if case(name) not in others), None)

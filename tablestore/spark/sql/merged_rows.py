"""Checks the rows that a MERGE inserts, which the condition of the statement alone does not (decision 123)."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN, RowKind

__all__ = ["inserting_new_keys"]


def inserting_new_keys(rows: DataFrame, stored: DataFrame, definition: TableDefinition) -> DataFrame:
    """Returns the rows of a MERGE; a task fails (``repeated-key``) if one inserts a key that the table has.

    The key may be that of a row which the same statement deletes.

    Args:
        rows: With ``_kind``, or inserts alone.
        stored: The rows that the statement has read.
        definition: The table's.
    """
    key = definition.primary_key
    kept = stored.select([F.col(quoted(name)).alias(f"_stored_{number}") for number, name in enumerate(key)])
    same_key = reduce(and_, (rows[quoted(name)] == kept[f"_stored_{number}"] for number, name in enumerate(key)))
    with_kinds = KIND_COLUMN in rows.columns
    inserts = rows[KIND_COLUMN] == str(RowKind.INSERT) if with_kinds else F.lit(True)
    joined = rows.join(kept, inserts & same_key, "left")
    taken = kept["_stored_0"].isNotNull()
    if with_kinds:
        deletes = F.when(rows[KIND_COLUMN] == str(RowKind.DELETE), True)
        deleted = F.max(deletes).over(Window.partitionBy(*(rows[quoted(name)] for name in key)))
        taken &= deleted.isNull()
    message = F.concat(
        F.lit("[tablestore: repeated-key] MERGE inserts the key "),
        F.to_json(F.struct(*(rows[quoted(name)] for name in key))),
        F.lit(
            ", which the table has in a row that the condition does not match: compare the whole primary key in ON, or "
            "write INSERT, which replaces rows"
        ),
    )
    first = rows.schema[key[0]].dataType
    checked = F.when(taken, F.raise_error(message).cast(first)).otherwise(rows[quoted(key[0])]).alias(key[0])
    return joined.select([checked if name == key[0] else rows[quoted(name)] for name in rows.columns])

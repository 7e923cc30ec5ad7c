"""Decides what a topic's rows are to a query that does not ask for ``_kind``: the one place of this rule.

A topic of rows has inserts only. Where messages are changes, a stream needs their kinds. A batch gets the last row of
each key; without a key it needs the kinds, too.
"""

from __future__ import annotations

from filestore.errors import Unsupported
from log.connector.declaration import KafkaDeclaration
from tablestore.topics.spec import is_complete

__all__ = ["batch_needs_kinds", "stream_needs_kinds"]


def stream_needs_kinds(table: KafkaDeclaration) -> Unsupported | None:
    """Returns the error of a stream without ``_kind`` (``changes-needed``); None if all its rows are inserts."""
    if is_complete(table):
        return None
    return _needed(
        table,
        "a stream without the column _kind would take updates and deletes for further rows. Select _kind, too, as in "
        "SELECT *, _kind FROM STREAM …: a table with a key applies it. To add values up, read with 'mode' = "
        "'changelog' and a folder as 'state', and subtract rows of the kinds -U and -D",
    )


def batch_needs_kinds(table: KafkaDeclaration) -> Unsupported | None:
    """Returns the error of a batch without ``_kind`` (``changes-needed``); None if its rows are right without it."""
    if is_complete(table) or table.primary_key:
        return None
    return _needed(
        table,
        "the topic has no primary key, so a query without the column _kind would take updates and deletes for further "
        "rows. Declare the topic with PRIMARY KEY (…) NOT ENFORCED: then a query reads the last row of each key, and "
        "INSERT INTO a table with the same key applies the changes. To read the messages, select _kind, too",
    )


def _needed(table: KafkaDeclaration, why: str) -> Unsupported:
    return Unsupported(f"messages of topic {table.topic} are changes, and {why}", code="changes-needed")

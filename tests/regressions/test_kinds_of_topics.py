"""Streams and batches of topics without ``_kind`` took deletes for rows, and both halves of an update for two."""

from __future__ import annotations

import pytest

from tablestore.topics.kinds import batch_needs_kinds, stream_needs_kinds
from tests.log.connector.tables import KAFKA, UPSERT, declared
from tests.topics import KEYED, PLAIN


@pytest.mark.parametrize(
    ("columns", "base", "value_format", "stream", "batch"),
    [
        (PLAIN, KAFKA, "json", None, None),
        (PLAIN, KAFKA, "csv", None, None),
        (KEYED, UPSERT, "json", "changes-needed", None),
        (PLAIN, KAFKA, "debezium-json", "changes-needed", "changes-needed"),
        (PLAIN, KAFKA, "canal-json", "changes-needed", "changes-needed"),
        (KEYED, KAFKA, "debezium-json", "changes-needed", None),
    ],
)
def test_who_needs_the_kinds(
    columns: str, base: dict[str, str], value_format: str, stream: str | None, batch: str | None
) -> None:
    table = declared(columns, base, value_format=value_format)
    refused, refused_batch = stream_needs_kinds(table), batch_needs_kinds(table)
    assert (refused and refused.code, refused_batch and refused_batch.code) == (stream, batch)

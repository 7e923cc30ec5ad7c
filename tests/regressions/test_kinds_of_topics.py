"""Streams and batches of topics without ``_kind`` took deletes for rows, and both halves of an update for two."""

from __future__ import annotations

import pytest

from tablestore.topics.kinds import batch_needs_kinds, stream_needs_kinds, takes_kinds
from tests.log.connector.tables import KAFKA, UPSERT, declared
from tests.topics import KEYED, PLAIN


@pytest.mark.parametrize(
    ("columns", "base", "value_format", "stream", "batch", "taken"),
    [
        (PLAIN, KAFKA, "json", None, None, False),
        (PLAIN, KAFKA, "csv", None, None, False),
        (KEYED, UPSERT, "json", "changes-needed", None, True),
        (PLAIN, KAFKA, "debezium-json", "changes-needed", "changes-needed", True),
        (PLAIN, KAFKA, "canal-json", "changes-needed", "changes-needed", True),
        (KEYED, KAFKA, "debezium-json", "changes-needed", None, True),
    ],
)
def test_who_needs_the_kinds(
    columns: str, base: dict[str, str], value_format: str, stream: str | None, batch: str | None, taken: bool
) -> None:
    table = declared(columns, base, value_format=value_format)
    refused, refused_batch = stream_needs_kinds(table), batch_needs_kinds(table)
    assert (refused and refused.code, refused_batch and refused_batch.code) == (stream, batch)
    assert takes_kinds(table) is taken

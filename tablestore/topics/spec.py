"""Decides whether a topic's messages are complete changes; if not, a normalizer computes these."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from filestore.errors import InvalidRequest
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import RowDecoder
from tablestore.normalizing.spec import NormalizerSpec

__all__ = ["consumer_unused", "is_complete", "spec_of", "state_unused"]


def is_complete(table: KafkaDeclaration) -> bool:
    """Returns whether the topic's messages are complete changes: it has only inserts."""
    return not table.upserts and not table.value_format.changelog


def state_unused(state: str) -> InvalidRequest:
    """The error of a reader that was given a state but needs none."""
    return InvalidRequest(
        f"state = {state!r} is for mode = changelog of a topic with upserts: leave it out; consumer = ID "
        "stores the position",
        code="state-unused",
    )


def consumer_unused(consumer: str) -> InvalidRequest:
    """The error of a reader whose position is in its state, with the rows."""
    return InvalidRequest(
        f"consumer = {consumer!r}: with mode = changelog of a topic with upserts the folder in state has the position, "
        "with the rows: pass state instead",
        code="consumer-unused",
    )


def spec_of(table: KafkaDeclaration, state: str, columns: Sequence[str] | None) -> NormalizerSpec:
    """Makes the normalizer spec of a table: for all columns, or for some and the key. Picklable, for tasks.

    Raises:
        InvalidRequest: ``no-primary-key``.
        NotFound: ``unknown-column``.
    """
    if not table.primary_key:
        raise InvalidRequest(
            f"topic {table.topic} has no primary key, which is needed to find the row that a change replaces: declare "
            "PRIMARY KEY (…) NOT ENFORCED, or read it without mode = changelog",
            code="no-primary-key",
        )
    wanted = None if columns is None else {*columns, *table.primary_key}
    # metadata columns are treated like other columns here
    fields = [f.remove_metadata() for f in RowDecoder.of(table, wanted).plan.declared]
    return NormalizerSpec.of(state, pa.schema(fields), table.primary_key)

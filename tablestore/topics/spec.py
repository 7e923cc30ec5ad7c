"""Whether a topic's messages are complete changes as they are, and what makes them so if not: its normalizer."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from filestore.errors import InvalidRequest
from log.connectors.declaration import KafkaDeclaration
from log.connectors.decoding import RowDecoder
from tablestore.normalizing.spec import NormalizerSpec

__all__ = ["consumer_unused", "is_complete", "spec_of", "state_unused"]


def is_complete(table: KafkaDeclaration) -> bool:
    """Whether the topic's changes are complete as they are: its rows only come."""
    return not table.upserts and not table.value_format.changelog


def state_unused(state: str) -> InvalidRequest:
    """The error of a reader that was given a state and needs none."""
    return InvalidRequest(
        f"state = {state!r} is for mode = changelog of a topic that tells upserts: leave it out; consumer = ID "
        "remembers the place",
        code="state-unused",
    )


def consumer_unused(consumer: str) -> InvalidRequest:
    """The error of a reader that keeps its place with what it knows of the rows."""
    return InvalidRequest(
        f"consumer = {consumer!r}: with mode = changelog of a topic that tells upserts the place lies in the folder "
        "state, with the rows: name that instead",
        code="consumer-unused",
    )


def spec_of(table: KafkaDeclaration, state: str, columns: Sequence[str] | None) -> NormalizerSpec:
    """The normalizer of a table: of all columns, or of some and the key. Picklable, for tasks (`NormalizerSpec.part`).

    Raises:
        InvalidRequest: ``no-primary-key``.
        NotFound: ``unknown-column``.
    """
    if not table.primary_key:
        raise InvalidRequest(
            f"topic {table.topic} has no primary key, by which the row that a change replaces is known: declare "
            "PRIMARY KEY (…) NOT ENFORCED, or read it without mode = changelog",
            code="no-primary-key",
        )
    wanted = None if columns is None else {*columns, *table.primary_key}
    # A column of metadata is one like others here.
    fields = [f.remove_metadata() for f in RowDecoder.of(table, wanted).plan.declared]
    return NormalizerSpec.of(state, pa.schema(fields), table.primary_key)

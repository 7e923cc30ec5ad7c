"""The targets of ingested changes: a managed table, whose snapshots have the offsets, or a compacted topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.commit.proposal import AppVersion
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest
from filestore.model.changes import AddColumn
from filestore.model.schema import Column, Schema
from filestore.rows.upserts import as_upserts
from tablestore.kafka_table import KafkaTable
from tablestore.table import Table
from tablestore.topics.offsets import named, offsets_of
from tablestore.topics.place import ReaderPlace
from tablestore.writing.given_rows import GivenRows

if TYPE_CHECKING:
    from log.kafka.groups import GroupOffsets

__all__ = ["ManagedTarget", "Target", "TopicTarget"]

_APP = "tablestore.ingest/"


class Target(Protocol):
    """The target of changes."""

    @property
    def columns(self) -> Schema:
        """The target's columns."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """The target's primary key."""
        ...

    def offsets(self) -> dict[int, int]:
        """The offsets up to which the topic was written, by partition; empty at first."""
        ...

    def add(self, columns: Sequence[Column]) -> Schema:
        """Adds columns and returns all."""
        ...

    def take(self, rows: pa.Table, offsets: Mapping[int, int]) -> int | None:
        """Writes changes, and the offsets that they reach; returns the version with them, if there is one."""
        ...

    def keep(self, offsets: Mapping[int, int]) -> None:
        """Keeps the offsets alive when there are no changes; all changes before these offsets were written."""
        ...


class ManagedTarget:
    """A managed table: changes and offsets are in one commit.

    Args:
        table: The table.
        topic_id: The id of the topic of the offsets: a topic that is created again with the same name has another.
    """

    def __init__(self, table: Table, topic_id: str) -> None:
        self._table = table
        self._topic_id = topic_id
        self._known: dict[int, int] = {}
        if not self.key:
            raise InvalidRequest(
                f"table {table.identifier} has no primary key, by which changes could find their rows: ingest into "
                "another table",
                code="no-primary-key",
            )

    @property
    def columns(self) -> Schema:
        """Implements `Target`."""
        return self._table.definition.schema

    @property
    def key(self) -> tuple[str, ...]:
        """Implements `Target`."""
        return self._table.definition.primary_key

    def offsets(self) -> dict[int, int]:
        """Implements `Target`."""
        self._known = self._offsets(self._table.filestore.state())
        return dict(self._known)

    def _offsets(self, state: TableState) -> dict[int, int]:
        ours = {name: at for name, at in state.positions.items() if name.startswith(f"{self._topic_id}/")}
        return offsets_of(self._topic_id, ours, "the table")

    def add(self, columns: Sequence[Column]) -> Schema:
        """Implements `Target`; raises as `tablestore.Table.alter`."""
        self._table.alter(*(AddColumn(c.name, c.type, comment=c.comment) for c in columns))
        return self.columns

    def take(self, rows: pa.Table, offsets: Mapping[int, int]) -> int:
        """Implements `Target`: writes only if the table is at the offsets of the last batch, and once, by its number.

        Raises:
            Conflict: ``other-batch``: another process ingests the topic, too. Nothing was changed.
            InvalidRequest: ``delete-without-sequence``. Nothing was changed.
            TableStoreError: as `tablestore.Table.write`.
        """
        positions, app_id = named(self._topic_id, offsets), _APP + self._topic_id
        filestore = self._table.filestore
        state = filestore.state()
        if self._offsets(state) != self._known:
            raise self._other()
        app = AppVersion(app_id, state.app_versions.get(app_id, -1) + 1, tuple(sorted(positions.items())))
        with GivenRows(rows) as given:
            snapshot = self._table.writer().write(given, app=app, in_order=True)
        if filestore.required(snapshot.version).positions != positions:
            raise self._other()
        self._known = dict(offsets)
        self._table.in_writer.after_commit(self._table.definition)
        return snapshot.version

    def keep(self, offsets: Mapping[int, int]) -> None:
        """Does nothing: a version exists as long as the table does."""

    def _other(self) -> Conflict:
        return Conflict(
            f"another process ingests the same topic into {self._table.identifier}: let only one continue",
            code="other-batch",
        )


class TopicTarget:
    """An upsert-kafka table. Offsets are stored after the messages, so the last ones may be written twice.

    Args:
        table: The table, with connector = upsert-kafka.
        kept: Stores offsets.
        ambient: The clock.
    """

    def __init__(self, table: KafkaTable, kept: GroupOffsets, ambient: Ambient) -> None:
        self._table = table
        self._kept = kept
        self._place = ReaderPlace(kept.write, {}, ambient)

    @property
    def columns(self) -> Schema:
        """Implements `Target`: the physical columns."""
        return self._table.declaration.columns.physical

    @property
    def key(self) -> tuple[str, ...]:
        """Implements `Target`."""
        return self._table.declaration.primary_key

    def offsets(self) -> dict[int, int]:
        """Implements `Target`."""
        return self._kept.read()

    def add(self, columns: Sequence[Column]) -> Schema:
        """Fails, since a topic's columns cannot change.

        Raises:
            InvalidRequest: ``schema-changed``.
        """
        raise InvalidRequest(
            f"the messages have columns that table {self._table.identifier} lacks: {Schema(tuple(columns)).to_sql()}. "
            "The columns of a topic cannot change: drop the table (the topic stays), create it again with them and "
            "continue, or leave them out on purpose",
            code="schema-changed",
        )

    def take(self, rows: pa.Table, offsets: Mapping[int, int]) -> None:
        """Implements `Target`; raises as `KafkaTable.write`."""
        self._table.write(as_upserts(rows, self.key))
        self._place.reached(offsets)

    def keep(self, offsets: Mapping[int, int]) -> None:
        """Implements `Target`; raises as `ReaderPlace.reached`."""
        self._place.reached(offsets)

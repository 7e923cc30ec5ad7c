"""Where ingested changes go: a managed table, in whose snapshots the offsets are, or a compacted topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.delta.conflict import AppVersion
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest
from filestore.model.changes import AddColumn
from filestore.model.schema import Column, Schema
from filestore.rows.upserts import as_upserts
from tablestore.kafka_table import KafkaTable
from tablestore.table import Table
from tablestore.topics.offsets import named, offsets_of
from tablestore.topics.place import ReaderPlace
from tablestore.writing.given_rows import given_rows

if TYPE_CHECKING:
    from log.kafka.group_offsets import GroupOffsets

__all__ = ["ManagedTarget", "Target", "TopicTarget"]

_APP = "tablestore.ingest/"


class Target(Protocol):
    """What takes changes."""

    @property
    def columns(self) -> Schema:
        """Its columns."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """Its primary key."""
        ...

    def offsets(self) -> dict[int, int]:
        """How far the topic was taken, by partition; empty at first."""
        ...

    def add(self, columns: Sequence[Column]) -> Schema:
        """Adds columns and gives all."""
        ...

    def take(self, rows: pa.Table, offsets: Mapping[int, int]) -> int | None:
        """Takes changes, and how far the topic was taken with them; gives the version that has them, if any."""
        ...

    def keep(self, offsets: Mapping[int, int]) -> None:
        """Sees that the place is not forgotten while nothing comes; all changes before these offsets were taken."""
        ...


class ManagedTarget:
    """A managed table: changes and offsets are one commit.

    Args:
        table: The table.
        topic_id: Whose offsets they are: a topic that is made anew under the same name is another.
    """

    def __init__(self, table: Table, topic_id: str) -> None:
        self._table = table
        self._topic_id = topic_id
        self._known: dict[int, int] = {}
        if not self.key:
            raise InvalidRequest(
                f"table {table.handle.identifier} has no primary key, by which changes find their rows: ingest into "
                "another table",
                code="no-primary-key",
            )

    @property
    def columns(self) -> Schema:
        """As `Target`."""
        return self._table.definition.schema

    @property
    def key(self) -> tuple[str, ...]:
        """As `Target`."""
        return self._table.definition.primary_key

    def offsets(self) -> dict[int, int]:
        """As `Target`."""
        self._known = self._offsets(self._table.filestore.state())
        return dict(self._known)

    def _offsets(self, state: TableState) -> dict[int, int]:
        ours = {name: at for name, at in state.positions.items() if name.startswith(f"{self._topic_id}/")}
        return offsets_of(self._topic_id, ours, "the table")

    def add(self, columns: Sequence[Column]) -> Schema:
        """As `Target`; errors as `tablestore.Table.alter`."""
        self._table.alter(*(AddColumn(c.name, c.type, comment=c.comment) for c in columns))
        return self.columns

    def take(self, rows: pa.Table, offsets: Mapping[int, int]) -> int:
        """As `Target`: if the table is where `offsets` or the last batch said; and once, by the next number.

        Raises:
            Conflict: ``other-batch``: another process ingests the topic, too. Nothing was changed.
            TableStoreError: as `tablestore.Table.write`.
        """
        positions, app_id = named(self._topic_id, offsets), _APP + self._topic_id
        files = self._table.filestore
        state = files.state()
        if self._offsets(state) != self._known:
            raise self._other()
        app = AppVersion(app_id, state.app_versions.get(app_id, -1) + 1, tuple(sorted(positions.items())))
        snapshot = self._table.writer().write(given_rows(rows), app=app)
        if files.required(snapshot.version).positions != positions:
            raise self._other()
        self._known = dict(offsets)
        self._table.in_writer.after_commit(self._table.definition)
        return snapshot.version

    def keep(self, offsets: Mapping[int, int]) -> None:
        """As `Target`: a version is there for as long as the table is."""

    def _other(self) -> Conflict:
        return Conflict(
            f"another process ingests the same topic into {self._table.handle.identifier}: let one go on alone",
            code="other-batch",
        )


class TopicTarget:
    """An upsert-kafka table. Offsets are kept behind the messages, so what was written last may be written again.

    Args:
        table: The table, one of upserts.
        kept: Where offsets are kept.
        ambient: The clock.
    """

    def __init__(self, table: KafkaTable, kept: GroupOffsets, ambient: Ambient) -> None:
        self._table = table
        self._kept = kept
        self._place = ReaderPlace(kept.write, {}, ambient)

    @property
    def columns(self) -> Schema:
        """As `Target`: the physical ones."""
        return self._table.declaration.columns.physical

    @property
    def key(self) -> tuple[str, ...]:
        """As `Target`."""
        return self._table.declaration.primary_key

    def offsets(self) -> dict[int, int]:
        """As `Target`."""
        return self._kept.read()

    def add(self, columns: Sequence[Column]) -> Schema:
        """A topic's columns cannot change.

        Raises:
            InvalidRequest: ``schema-changed``.
        """
        raise InvalidRequest(
            f"the messages have columns that table {self._table.identifier} lacks: {Schema(tuple(columns)).to_sql()}. "
            "The columns of a topic cannot change: drop the table (the topic stays), declare it anew with them and go "
            "on, or leave them out on purpose",
            code="schema-changed",
        )

    def take(self, rows: pa.Table, offsets: Mapping[int, int]) -> None:
        """As `Target`; errors as `KafkaTable.write`."""
        self._table.write(as_upserts(rows, self.key))
        self._place.reached(offsets)

    def keep(self, offsets: Mapping[int, int]) -> None:
        """As `Target`; errors as `ReaderPlace.reached`."""
        self._place.reached(offsets)

"""The catalog's SQL tables, and their rows as values. `migrations/` makes them; a test holds the two equal.

A table's location is not stored: it follows from the warehouse and the names
(`filestore.layout.table_location`), so a warehouse with its catalog in it can be moved or mounted elsewhere.
So two rows may never have one name, in any state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, MetaData, String, Table, Text, false

from catalog_service.names import NAME_LENGTH_MAX
from filestore.errors import Unsupported
from filestore.model.definition import TableDefinition
from log.connectors.declaration import KafkaDeclaration

__all__ = [
    "DATABASES",
    "LEASES",
    "LOG_DEBTS",
    "METADATA",
    "TABLES",
    "DatabaseRow",
    "LeaseRow",
    "State",
    "TableEntry",
    "TableRow",
    "managed",
]

METADATA = MetaData()
_NAME = String(NAME_LENGTH_MAX)
_UUID = String(36)
_STATE = String(16)

DATABASES = Table(
    "databases",
    METADATA,
    Column("name", _NAME, primary_key=True),
    Column("state", _STATE, nullable=False),
    Column("comment", Text),
    Column("created_at_ms", BigInteger, nullable=False),
)

TABLES = Table(
    "tables",
    METADATA,
    Column("database", _NAME, ForeignKey(DATABASES.c.name), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("table_id", _UUID, nullable=False, unique=True),
    Column("state", _STATE, nullable=False),
    Column("definition", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("connector", String(32)),  # null of a managed table
    # of a managed table: its log is a topic that was there before it
    Column("keeps_topic", Boolean, nullable=False, server_default=false()),
)

# Tables that are gone but for their log, whose server did not answer. They hold no name: the log's holds the
# table's UUID.
LOG_DEBTS = Table(
    "log_debts",
    METADATA,
    Column("table_id", _UUID, primary_key=True),
    Column("database", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("definition", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("retry_at_ms", BigInteger, nullable=False),
)

# Who keeps a table at the moment (compaction and its like), until when by the database's clock.
LEASES = Table(
    "leases",
    METADATA,
    Column("table_id", _UUID, ForeignKey(TABLES.c.table_id, ondelete="CASCADE"), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
)


class State(StrEnum):
    """Only ACTIVE rows are visible to users; the others are somebody's work, or what a crash left."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    DROPPING = "DROPPING"


@dataclass(frozen=True, slots=True)
class DatabaseRow:
    """A database; it is never CREATING, since nothing but its row makes it."""

    name: str
    state: State
    comment: str | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table: what was asked for at its creation. What a managed one has become since, its Delta log says.

    One with a connector has nothing but its row, so it is never CREATING or DROPPING but with its database. With
    `keeps_topic` its log is a topic that was there before it, and stays when it goes.
    """

    database: str
    name: str
    table_id: str
    state: State
    definition: TableDefinition | KafkaDeclaration
    created_at_ms: int
    keeps_topic: bool = False


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table in a list: what is said of it without reading what it was created as."""

    database: str
    name: str
    table_id: str
    connector: str | None
    comment: str | None
    created_at_ms: int


def managed(row: TableRow) -> TableDefinition:
    """What a managed table was created as.

    Raises:
        Unsupported: ``connector-table``: it is none.
    """
    if isinstance(row.definition, TableDefinition):
        return row.definition
    raise Unsupported(
        f"table {row.database}.{row.name} has connector = {row.definition.connector}: it is the topic "
        f"{row.definition.topic!r}, and has no files, versions or columns that change. Drop it and declare it anew to "
        "change it; its topic stays",
        code="connector-table",
    )


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """Who may keep a table, until when by the database's clock."""

    table_id: str
    owner: str
    expires_at_ms: int

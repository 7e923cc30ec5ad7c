"""The catalog's SQL tables, and their rows as values. `migrations/` creates them; a test compares the two.

A table's location is not stored: it follows from the warehouse, the database's name and the folder's name
(`filestore.layout.table_location`), so a warehouse that contains its catalog can be moved or mounted elsewhere. So two
rows may never have one name, nor one folder, in any state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, MetaData, String, Table, Text, false

from catalog_service.model.names import NAME_LENGTH_MAX
from catalog_service.model.view_definition import ViewDefinition
from filestore.errors import Unsupported
from filestore.model.definition import TableDefinition
from log.connector.declaration import KafkaDeclaration

__all__ = [
    "COMMITS",
    "DATABASES",
    "LEASES",
    "LOG_DEBTS",
    "METADATA",
    "SETTINGS",
    "TABLES",
    "DatabaseRow",
    "Definition",
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
    Column("connector", String(32)),  # null for a managed table; a view has "view"
    # of a managed table: whether its log is a topic that existed before the table
    Column("keeps_topic", Boolean, nullable=False, server_default=false()),
    Column("folder", _NAME),  # null unless it is a managed table
    Index("folders", "database", "folder", unique=True),
)

# Dropped tables whose log could not be deleted, since its server did not answer. They do not block a name: the log's
# name contains the table's UUID.
LOG_DEBTS = Table(
    "log_debts",
    METADATA,
    Column("table_id", _UUID, primary_key=True),
    Column("database", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("definition", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("retry_at_ms", BigInteger, nullable=False),
    Column("folder", _NAME),  # which the log's name contains
)

# The process that maintains a table at the moment (such as a compactor), and until when by the database's clock.
LEASES = Table(
    "leases",
    METADATA,
    Column("table_id", _UUID, ForeignKey(TABLES.c.table_id, ondelete="CASCADE"), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
)


# What was decided for the whole catalog when its first database was created.
SETTINGS = Table(
    "settings",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("value", String(200), nullable=False),
)

# The newest version that a writer has claimed, of each table whose commits the catalog holds
# (filestore/commit/held.py).
COMMITS = Table(
    "commits",
    METADATA,
    Column("table_id", _UUID, ForeignKey(TABLES.c.table_id, ondelete="CASCADE"), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("file", String(200), nullable=False),
    Column("published", Boolean, nullable=False),
)


class State(StrEnum):
    """The state of a database or table. Users see only ACTIVE rows; the others are in work, or left by a crash.

    A STAGED table is complete and has a hidden name, which only the client knows that fills it before it publishes it.
    """

    CREATING = "CREATING"
    STAGED = "STAGED"
    ACTIVE = "ACTIVE"
    DROPPING = "DROPPING"


Definition = TableDefinition | KafkaDeclaration | ViewDefinition
"""The definition that a row of the tables stands for: a managed table, a topic, or a view."""


@dataclass(frozen=True, slots=True)
class DatabaseRow:
    """A database; it is never CREATING, since it consists of nothing but its row."""

    name: str
    state: State
    comment: str | None
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table as it was created. The current definition of a managed one is in its Delta log.

    A view and a table with a connector are only their rows, so they are DROPPING only together with their database, and
    never CREATING. With `keeps_topic` its log is a topic that existed before the table, and stays after its drop.
    """

    database: str
    name: str
    table_id: str
    state: State
    definition: Definition
    created_at_ms: int
    keeps_topic: bool = False
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table in a list, with what can be read without decoding its definition."""

    database: str
    name: str
    table_id: str
    connector: str | None
    comment: str | None
    created_at_ms: int
    folder: str | None


def managed(row: TableRow) -> TableDefinition:
    """The definition with which a managed table was created.

    Raises:
        Unsupported: ``connector-table``, ``view``: the table is not a managed one.
    """
    if isinstance(row.definition, TableDefinition):
        return row.definition
    if isinstance(row.definition, ViewDefinition):
        raise Unsupported(
            f"{row.database}.{row.name} is a view: it has no rows of its own, no files and no versions", code="view"
        )
    raise Unsupported(
        f"table {row.database}.{row.name} has connector = {row.definition.connector}: it is the topic "
        f"{row.definition.topic!r}, and has no files, no versions and no columns that could change. To change it drop "
        "it and create it again; its topic stays",
        code="connector-table",
    )


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The owner that maintains a table, and until when by the database's clock."""

    table_id: str
    owner: str
    expires_at_ms: int

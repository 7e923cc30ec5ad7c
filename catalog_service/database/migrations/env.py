"""Applies the migration scripts in the transaction that `catalog_service.database.engine.migrate` has begun.

Alembic runs it.
"""

from __future__ import annotations

from alembic import context

from catalog_service.database.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()

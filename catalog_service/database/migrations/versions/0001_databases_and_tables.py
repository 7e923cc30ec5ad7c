"""Adds databases, tables, and logs that are still to be deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "databases",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("comment", sa.Text),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tables",
        sa.Column("database", sa.String(100), sa.ForeignKey("databases.name"), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("table_id", sa.String(36), nullable=False, unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "log_debts",
        sa.Column("table_id", sa.String(36), primary_key=True),
        sa.Column("database", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("retry_at_ms", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    # IMPORTANT: only the catalog's rows are lost. The files and topics of its tables stay.
    op.drop_table("log_debts")
    op.drop_table("tables")
    op.drop_table("databases")

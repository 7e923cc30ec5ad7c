"""Adds the leases of processes that maintain tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("table_id", sa.String(36), sa.ForeignKey("tables.table_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("leases")

"""Adds claims of versions, for stores that cannot create a file exclusively, and settings of the catalog."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "settings",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.String(200), nullable=False),
    )
    op.create_table(
        "commits",
        sa.Column("table_id", sa.String(36), sa.ForeignKey("tables.table_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("file", sa.String(200), nullable=False),
        sa.Column("published", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    # IMPORTANT: an older version refuses to write tables whose commits the catalog holds, by their writer feature.
    op.drop_table("commits")
    op.drop_table("settings")

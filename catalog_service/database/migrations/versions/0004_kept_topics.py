"""Adds tables whose log is a topic that existed before them, and stays when they are dropped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("keeps_topic", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    # IMPORTANT: an older version drops those topics with their tables.
    op.drop_column("tables", "keeps_topic")

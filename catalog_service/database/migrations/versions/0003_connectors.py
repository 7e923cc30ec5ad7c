"""Adds tables with a connector, which have no files and no log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("connector", sa.String(32)))


def downgrade() -> None:
    # An older version could not read them, and only the declarations are lost: the rows are in the topics.
    op.execute("DELETE FROM tables WHERE connector IS NOT NULL")
    op.drop_column("tables", "connector")

"""Adds the names of tables' folders, which stay when a table is renamed. Until then a folder had its table's name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from filestore.errors import Unsupported

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tables", sa.Column("folder", sa.String(100)))
    op.execute("UPDATE tables SET folder = name WHERE connector IS NULL")
    op.create_index("folders", "tables", ["database", "folder"], unique=True)
    op.add_column("log_debts", sa.Column("folder", sa.String(100)))
    op.execute("UPDATE log_debts SET folder = name")


def downgrade() -> None:
    # IMPORTANT: an older version would look for a renamed table in another folder, and cannot decode a view.
    query = "SELECT database, name, folder FROM tables WHERE folder <> name ORDER BY database, name LIMIT 5"
    if renamed := [f"{row[0]}.{row[1]} (in {row[2]})" for row in op.get_bind().execute(sa.text(query))]:
        raise Unsupported(
            f"an older version does not find tables whose folder has another name: {', '.join(renamed)}. Rename them "
            "back, or copy them to new tables and drop them",
            code="renamed-tables",
        )
    op.execute("DELETE FROM tables WHERE connector = 'view'")
    op.drop_column("log_debts", "folder")
    op.drop_index("folders", "tables")
    op.drop_column("tables", "folder")

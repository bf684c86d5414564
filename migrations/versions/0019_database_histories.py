"""Histories of PostgreSQL, so that no number is given twice after a promotion

Revision: 0019_since_0002
Before it: 0018_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0019_since_0002"
down_revision = "0018_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "database_histories",
        sa.Column("identifier", sa.String(length=40), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("identifier"),
    )


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("database_histories")

"""When an example was removed: its text is kept for a day, so that this can be undone

Revision: 0007_since_0002
Before it: 0006_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0007_since_0002"
down_revision = "0006_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("examples", sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """To the one before it."""
    op.execute("UPDATE examples SET excerpt = '', reason = '' WHERE removed_at IS NOT NULL")
    op.drop_column("examples", "removed_at")

"""Single sign-on: when its owner linked a sign-in, and whether it must be linked again

Revision: 0024_since_0002
Before it: 0023_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0024_since_0002"
down_revision = "0023_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("identities", sa.Column("linked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("identities", sa.Column("locked", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """To the one before it."""
    with op.batch_alter_table("identities") as table:
        table.drop_column("locked")
        table.drop_column("linked_at")

"""Samples of single levels, whose target is for all criteria together

Revision: 0018_since_0002
Before it: 0017_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0018_since_0002"
down_revision = "0017_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    together = sa.Column("together", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("guarantee_samples", together)
    op.add_column("guarantee_candidates", sa.Column("turns", sa.JSON(), nullable=True))


def downgrade() -> None:
    """To the one before it."""
    # before, limits would be read as those of whole submissions
    op.execute("update guarantee_samples set replaced_at = at where together and replaced_at is null")
    op.drop_column("guarantee_candidates", "turns")
    op.drop_column("guarantee_samples", "together")

"""The last result of a round combines it: no flag says whether a chord will

Revision: 0035
Before it: 0034
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision. Rounds under way are combined by their last result, or by the sweeper."""
    op.drop_column("rounds", "chord_open")


def downgrade() -> None:
    """To the one before."""
    op.add_column("rounds", sa.Column("chord_open", sa.Boolean(), nullable=False, server_default=sa.false()))

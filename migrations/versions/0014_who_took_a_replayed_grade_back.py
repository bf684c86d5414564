"""Who had taken a grade back before its round was replayed

Revision: 0014
Before it: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("rounds", sa.Column("withdrawn_by", sa.Integer(), nullable=True))


def downgrade() -> None:
    """From this revision."""
    op.drop_column("rounds", "withdrawn_by")

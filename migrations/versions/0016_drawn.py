"""How many submissions each draw of a guarantee's sample has

Revision: 0016_since_0002
Before it: 0015_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0016_since_0002"
down_revision = "0015_since_0002"
branch_labels = None
depends_on = None

DRAWN = """
UPDATE guarantee_draws SET drawn = (
    SELECT count(*) FROM guarantee_candidates AS one
    WHERE one.sample_id = guarantee_draws.sample_id AND one.number = guarantee_draws.number
    AND one.turn IS NOT NULL
)
"""


def upgrade() -> None:
    """To this revision."""
    column = sa.Column("drawn", sa.Integer(), nullable=False, server_default="0")
    op.add_column("guarantee_draws", column)
    op.execute(DRAWN)


def downgrade() -> None:
    """To the one before it."""
    op.drop_column("guarantee_draws", "drawn")

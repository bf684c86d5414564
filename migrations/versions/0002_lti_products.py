"""LTI: products of platforms, pages of links, what a score last said, names that providers gave

Revision: 0002
Before it: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = (
    ("lti_platforms", "family", 40),
    ("lti_links", "page", 1000),
    ("lti_scores", "submission_id", 32),
    ("lti_scores", "comment", 1000),
    ("identities", "told_name", 200),
)


def upgrade() -> None:
    """To this revision."""
    for table, column, length in COLUMNS:
        op.add_column(table, sa.Column(column, sa.String(length), nullable=False, server_default=""))


def downgrade() -> None:
    """To the one before it."""
    for table, column, _ in reversed(COLUMNS):
        op.drop_column(table, column)

"""LTI and Canvas: products, pages of links, what was sent and listed last, names that providers gave

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
    op.add_column("lti_members", sa.Column("learner", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("canvas_links", sa.Column("listed_at", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        "UPDATE lti_platforms SET family = 'canvas' WHERE issuer LIKE 'https://canvas.%instructure.com'"
    )


def downgrade() -> None:
    """To the one before it."""
    op.drop_column("canvas_links", "listed_at")
    op.drop_column("lti_members", "learner")
    for table, column, _ in reversed(COLUMNS):
        op.drop_column(table, column)

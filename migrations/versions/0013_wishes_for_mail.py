"""Who wants to hear by mail of which hand-in

Revision: 0013
Before it: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "mail_wishes",
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("submission_id", "user_id"),
    )
    op.create_index("ix_mail_wishes_user_id", "mail_wishes", ["user_id"])


def downgrade() -> None:
    """From this revision."""
    op.drop_table("mail_wishes")

"""What running work showed, kept by its content

Revision: 0005
Before it: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "trials",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=True),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_trials_submission_id", "trials", ["submission_id"])
    op.create_index("trials_by_time", "trials", ["created_at"])


def downgrade() -> None:
    """From this revision. Rounds that wait for a trial are prepared again, which then runs nothing."""
    op.execute(
        "update outbox set done_at = null where kind = 'prepare' and key in"
        " (select key from outbox where kind = 'trial' and done_at is null)"
    )
    op.execute("delete from outbox where kind = 'trial'")
    op.drop_table("trials")

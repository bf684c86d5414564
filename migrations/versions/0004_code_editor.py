"""The code editor: a setting of assignments, and the last check of each student's code

Revision: 0004_since_0002
Before it: 0003_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0004_since_0002"
down_revision = "0003_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    offered = sa.Column("code_editor", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("assignments", offered)
    op.create_table(
        "prechecks",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("documents", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("assignment_id", "user_id"),
    )
    op.create_index(op.f("ix_prechecks_user_id"), "prechecks", ["user_id"])
    op.create_index("prechecks_by_time", "prechecks", ["created_at"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("prechecks")
    op.drop_column("assignments", "code_editor")

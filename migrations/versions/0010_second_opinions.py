"""Second opinions: which rounds get one, what came of it, and each assignment's policy

Revision: 0010_since_0002
Before it: 0009_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0010_since_0002"
down_revision = "0009_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    policy = sa.Column("second_opinion", sa.JSON(), server_default=sa.text("'{}'"), nullable=False)
    op.add_column("assignments", policy)
    op.create_table(
        "second_opinions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("by_round", sa.String(length=32), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("opinions", sa.JSON(), nullable=False),
        sa.Column("apart", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by_round"], ["rounds.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("round_id", "stage"),
        sa.UniqueConstraint("by_round"),
    )
    op.create_index(op.f("ix_second_opinions_submission_id"), "second_opinions", ["submission_id"])
    op.create_index("second_opinions_by_state", "second_opinions", ["state", "family", "id"])
    op.create_index("second_opinions_of_assignment", "second_opinions", ["assignment_id", "state", "apart"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("second_opinions")
    with op.batch_alter_table("assignments") as table:
        table.drop_column("second_opinion")

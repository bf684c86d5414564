"""Answers: what groups of answers compare, and answers that were taken out of their group

Revision: 0003_since_0002
Before it: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003_since_0002"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "answers",
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("fingerprints", sa.LargeBinary(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=False),
        sa.Column("regions", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("round_id", "criterion"),
    )
    op.create_index("answers_of_criterion", "answers", ["assignment_id", "criterion"])
    op.create_index(op.f("ix_answers_submission_id"), "answers", ["submission_id"])
    op.create_table(
        "separate_answers",
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("submission_id", "criterion"),
    )


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("separate_answers")
    op.drop_table("answers")

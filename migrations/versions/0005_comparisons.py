"""Comparisons: pairs of similar submissions of an assignment

Revision: 0005_since_0002
Before it: 0004_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0005_since_0002"
down_revision = "0004_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "comparisons",
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("compared_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("works", sa.Integer(), nullable=False),
        sa.Column("earlier", sa.Integer(), nullable=False),
        sa.Column("silent", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.PrimaryKeyConstraint("assignment_id"),
    )
    op.create_table(
        "similar_pairs",
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("one_id", sa.String(length=32), nullable=False),
        sa.Column("other_id", sa.String(length=32), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("fingerprints", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["one_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["other_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("assignment_id", "one_id", "other_id"),
    )
    op.create_index(op.f("ix_similar_pairs_one_id"), "similar_pairs", ["one_id"])
    op.create_index(op.f("ix_similar_pairs_other_id"), "similar_pairs", ["other_id"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("similar_pairs")
    op.drop_table("comparisons")

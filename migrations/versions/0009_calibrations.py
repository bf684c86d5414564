"""Calibrations: weights of the chance that a level is wrong, fitted on a course's marks

Revision: 0009_since_0002
Before it: 0008_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0009_since_0002"
down_revision = "0008_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("course_id", sa.Integer(), nullable=False),
        sa.Column("features_version", sa.Integer(), nullable=False),
        sa.Column("weights", sa.JSON(), nullable=False),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.Column("wrong", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["course_id"], ["courses.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_calibrations_course_id", "calibrations", ["course_id"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("calibrations")

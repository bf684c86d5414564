"""Marks that people gave before, and the files they came in

Revision: 0015_since_0002
Before it: 0014_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0015_since_0002"
down_revision = "0014_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "mark_imports",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("assignment_id", "sha256"),
    )
    op.create_table(
        "human_marks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("import_id", sa.Integer(), nullable=False),
        sa.Column("work", sa.String(length=64), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=True),
        sa.Column("student_id", sa.Integer(), nullable=True),
        sa.Column("marker", sa.String(length=80), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("level", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["import_id"], ["mark_imports.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["student_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("assignment_id", "work", "criterion", "marker"),
    )
    for column in ("import_id", "submission_id", "student_id"):
        op.create_index(f"ix_human_marks_{column}", "human_marks", [column])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("human_marks")
    op.drop_table("mark_imports")

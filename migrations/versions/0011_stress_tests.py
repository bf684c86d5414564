"""Stress tests of a rubric, and the variants of submissions that they grade

Revision: 0011_since_0002
Before it: 0010_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0011_since_0002"
down_revision = "0010_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "stress_tests",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("rubric_version_id", sa.Integer(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["rubric_version_id"], ["rubric_versions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_stress_tests_assignment_id"), "stress_tests", ["assignment_id"])
    op.create_table(
        "stress_variants",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("stress_test_id", sa.String(length=32), nullable=False),
        sa.Column("source_id", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=400), nullable=False),
        sa.Column("family", sa.String(length=40), nullable=False),
        sa.Column("expects", sa.String(length=20), nullable=False),
        sa.Column("criterion", sa.String(length=64), nullable=False),
        sa.Column("variant_id", sa.String(length=32), nullable=True),
        sa.Column("round_id", sa.String(length=32), nullable=True),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["source_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["stress_test_id"], ["stress_tests.id"]),
        sa.ForeignKeyConstraint(["variant_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    for column in ("round_id", "source_id", "stress_test_id", "variant_id"):
        op.create_index(op.f(f"ix_stress_variants_{column}"), "stress_variants", [column])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("stress_variants")
    op.drop_table("stress_tests")

"""Guarantees: random samples that are marked blind, and what was released on their grounds

Revision: 0014_since_0002
Before it: 0013_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0014_since_0002"
down_revision = "0013_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "guarantee_samples",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("tolerance", sa.Integer(), nullable=False),
        sa.Column("calibration_id", sa.Integer(), nullable=True),
        sa.Column("rubric_version_id", sa.Integer(), nullable=False),
        sa.Column("ground", sa.JSON(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("replaced_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"]),
        sa.ForeignKeyConstraint(["rubric_version_id"], ["rubric_versions.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_guarantee_samples_assignment_id"), "guarantee_samples", ["assignment_id"])
    op.create_index(
        "one_open_guarantee_sample",
        "guarantee_samples",
        ["assignment_id"],
        unique=True,
        sqlite_where=sa.text("replaced_at is null"),
        postgresql_where=sa.text("replaced_at is null"),
    )
    op.create_table(
        "guarantee_members",
        sa.Column("sample_id", sa.String(length=32), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.Column("levels", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["sample_id"], ["guarantee_samples.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.PrimaryKeyConstraint("sample_id", "submission_id"),
    )
    op.create_index(op.f("ix_guarantee_members_submission_id"), "guarantee_members", ["submission_id"])
    op.create_table(
        "guarantee_draws",
        sa.Column("sample_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["sample_id"], ["guarantee_samples.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.PrimaryKeyConstraint("sample_id", "number"),
    )
    op.create_table(
        "guarantee_candidates",
        sa.Column("sample_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("known", sa.Boolean(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["sample_id", "number"], ["guarantee_draws.sample_id", "guarantee_draws.number"]
        ),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("sample_id", "number", "submission_id"),
    )
    op.create_index(op.f("ix_guarantee_candidates_submission_id"), "guarantee_candidates", ["submission_id"])
    op.create_table(
        "guarantee_releases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sample_id", sa.String(length=32), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("proven", sa.Integer(), nullable=False),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.Column("threshold", sa.Float(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["sample_id"], ["guarantee_samples.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_guarantee_releases_sample_id"), "guarantee_releases", ["sample_id"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("guarantee_releases")
    op.drop_table("guarantee_candidates")
    op.drop_table("guarantee_draws")
    op.drop_table("guarantee_members")
    op.drop_table("guarantee_samples")

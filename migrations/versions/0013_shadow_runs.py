"""Shadow runs: golden submissions, trials of models, alarms of parity, stages that a machine does no more

Revision: 0013_since_0002
Before it: 0012_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0013_since_0002"
down_revision = "0012_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "golden_submissions",
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.PrimaryKeyConstraint("submission_id"),
    )
    op.create_index(op.f("ix_golden_submissions_assignment_id"), "golden_submissions", ["assignment_id"])
    op.create_table(
        "model_trials",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("engine", sa.String(length=40), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("machine", sa.String(length=40), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decision", sa.String(length=20), nullable=False),
        sa.Column("decided_by", sa.Integer(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["decided_by"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_model_trials_assignment_id"), "model_trials", ["assignment_id"])
    op.create_table(
        "shadow_runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("trial_id", sa.String(length=32), nullable=True),
        sa.Column("night", sa.Date(), nullable=True),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("machine", sa.String(length=40), nullable=False),
        sa.Column("engine", sa.String(length=40), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("question", sa.String(length=32), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("job_hash", sa.String(length=64), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("judged", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["trial_id"], ["model_trials.id"]),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_shadow_runs_assignment_id"), "shadow_runs", ["assignment_id"])
    op.create_index(op.f("ix_shadow_runs_round_id"), "shadow_runs", ["round_id"])
    op.create_index(op.f("ix_shadow_runs_submission_id"), "shadow_runs", ["submission_id"])
    op.create_index(op.f("ix_shadow_runs_trial_id"), "shadow_runs", ["trial_id"])
    op.create_index("shadow_runs_by_night", "shadow_runs", ["night", "assignment_id", "stage"])
    op.create_index("shadow_runs_by_state", "shadow_runs", ["state", "machine"])
    op.create_table(
        "parity_alarms",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("night", sa.Date(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("machine", sa.String(length=40), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("why", sa.JSON(), nullable=False),
        sa.Column("out", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_parity_alarms_assignment_id"), "parity_alarms", ["assignment_id"])
    op.create_index("parity_alarms_by_machine", "parity_alarms", ["machine", "stage", "ended_at"])
    op.create_table(
        "stage_drains",
        sa.Column("machine", sa.String(length=40), nullable=False),
        sa.Column("stage", sa.String(length=40), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("by", sa.String(length=100), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("machine", "stage"),
    )


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("stage_drains")
    op.drop_table("parity_alarms")
    op.drop_table("shadow_runs")
    op.drop_table("model_trials")
    op.drop_table("golden_submissions")

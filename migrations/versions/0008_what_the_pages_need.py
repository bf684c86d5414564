"""What the pages need: reset links, groups, extensions, late rules, changes, marks, requests, dry runs

Revision: 0008
Before it: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def columns() -> dict[str, list[sa.Column]]:
    """What tables that are there gain."""
    text, number = sa.text("''"), sa.text("0")
    return {
        "assignments": [
            sa.Column("release_at", sa.DateTime(timezone=True), nullable=True),
            sa.Column("late", sa.JSON(), nullable=False, server_default=sa.text("'{}'")),
            sa.Column("max_hand_ins", sa.Integer(), nullable=True),
            sa.Column("group_size", sa.Integer(), nullable=False, server_default=sa.text("1")),
            sa.Column("counts", sa.String(length=10), nullable=False, server_default="latest"),
            sa.Column("visible", sa.Boolean(), nullable=False, server_default=sa.true()),
        ],
        "courses": [
            sa.Column("drop_lowest", sa.Integer(), nullable=False, server_default=number),
            sa.Column("archived", sa.Boolean(), nullable=False, server_default=sa.false()),
        ],
        "grades": [
            sa.Column("final_points", sa.Float(), nullable=True),
            sa.Column("adjustment", sa.Float(), nullable=False, server_default=number),
            sa.Column("credit", sa.Float(), nullable=False, server_default=sa.text("1")),
            sa.Column("reviewed_at", sa.DateTime(timezone=True), nullable=True),
            sa.Column("reviewed_by", sa.Integer(), nullable=True),
        ],
        "rubric_versions": [
            sa.Column("created_by", sa.Integer(), nullable=True),
            sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
            sa.Column("note", sa.Text(), nullable=False, server_default=text),
        ],
        "submissions": [sa.Column("fingerprint", sa.String(length=64), nullable=False, server_default=text)],
        "users": [
            sa.Column("language", sa.String(length=10), nullable=False, server_default=text),
            sa.Column("mail_when_ready", sa.Boolean(), nullable=False, server_default=sa.false()),
        ],
    }


def upgrade() -> None:
    """To this revision. All versions that are there count; all grades are what their report says."""
    for table, added in columns().items():
        for column in added:
            op.add_column(table, column)
    op.execute("update rubric_versions set published_at = created_at")
    op.execute("update grades set final_points = points")
    _people()
    _work()
    _reviewing()


def _people() -> None:
    op.create_table(
        "reset_links",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("created_by", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_index("ix_reset_links_user_id", "reset_links", ["user_id"])
    op.create_table(
        "saved_comments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("course_id", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["course_id"], ["courses.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_saved_comments_course_id", "saved_comments", ["course_id"])


def _work() -> None:
    op.create_table(
        "extensions",
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("student_id", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["student_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("assignment_id", "student_id"),
    )
    op.create_index("ix_extensions_student_id", "extensions", ["student_id"])
    op.create_table(
        "group_members",
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("group_id", sa.String(length=32), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("assignment_id", "user_id"),
    )
    op.create_index("ix_group_members_group_id", "group_members", ["group_id"])
    op.create_index("ix_group_members_user_id", "group_members", ["user_id"])
    op.create_table(
        "submission_members",
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("submission_id", "user_id"),
    )
    op.create_index("ix_submission_members_user_id", "submission_members", ["user_id"])
    op.create_table(
        "dry_runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("rubric_version_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=20), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["rubric_version_id"], ["rubric_versions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_dry_runs_assignment_id", "dry_runs", ["assignment_id"])
    op.create_table(
        "dry_run_rounds",
        sa.Column("dry_run_id", sa.String(length=32), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["dry_run_id"], ["dry_runs.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("dry_run_id", "submission_id"),
    )
    op.create_index("ix_dry_run_rounds_round_id", "dry_run_rounds", ["round_id"])
    op.create_index("ix_dry_run_rounds_submission_id", "dry_run_rounds", ["submission_id"])
    op.create_table(
        "examples",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("excerpt", sa.Text(), nullable=False),
        sa.Column("model_level", sa.Float(), nullable=True),
        sa.Column("level", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_examples_assignment_id", "examples", ["assignment_id"])
    op.create_index("ix_examples_submission_id", "examples", ["submission_id"])


def _reviewing() -> None:
    op.create_table(
        "changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("target", sa.String(length=100), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("bulk", sa.String(length=32), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("undone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("undone_by", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["undone_by"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("changes_of_round", "changes", ["round_id", "id"])
    op.create_index("ix_changes_submission_id", "changes", ["submission_id"])
    op.create_table(
        "marks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("level", sa.Float(), nullable=False),
        sa.Column("blind", sa.Boolean(), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("round_id", "criterion", "by"),
    )
    op.create_index("ix_marks_submission_id", "marks", ["submission_id"])
    op.create_table(
        "regrade_requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("round_id", sa.String(length=32), nullable=False),
        sa.Column("student_id", sa.Integer(), nullable=False),
        sa.Column("course_id", sa.Integer(), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("answered_by", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["answered_by"], ["users.id"]),
        sa.ForeignKeyConstraint(["course_id"], ["courses.id"]),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"]),
        sa.ForeignKeyConstraint(["student_id"], ["users.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_regrade_requests_submission_id", "regrade_requests", ["submission_id"])
    op.create_index(
        "regrade_requests_open", "regrade_requests", ["course_id", "state", "created_at"], unique=False
    )


TABLES = (
    "reset_links",
    "saved_comments",
    "extensions",
    "group_members",
    "submission_members",
    "dry_runs",
    "dry_run_rounds",
    "examples",
    "changes",
    "marks",
    "regrade_requests",
)
"""New ones, each after those it refers to."""


def downgrade() -> None:
    """From this revision."""
    for table in reversed(TABLES):
        op.drop_table(table)
    for table, added in columns().items():
        with op.batch_alter_table(table) as batch:
            for column in added:
                batch.drop_column(column.name)

"""Courses of a Canvas by its API, what was pulled and what was told; names of people as long as LTI allows

Revision: 0032
Before it: 0031
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    for table in ("identities", "lti_members"):
        _resize(table, 200, 255)
    _courses()
    _links()
    _taken()
    _scores()
    _tries()


def downgrade() -> None:
    """To the one before. Longer names of people are cut."""
    for table in ("canvas_tries", "canvas_scores", "canvas_taken", "canvas_links", "canvas_courses"):
        op.drop_table(table)
    op.execute("update lti_members set subject = substr(subject, 1, 200) where length(subject) > 200")
    op.execute("update identities set subject = substr(subject, 1, 200) where length(subject) > 200")
    for table in ("lti_members", "identities"):
        _resize(table, 255, 200)


def _resize(table: str, was: int, will: int) -> None:
    with op.batch_alter_table(table) as batch:
        batch.alter_column(
            "subject",
            existing_type=sa.String(length=was),
            type_=sa.String(length=will),
            existing_nullable=False,
        )


def _courses() -> None:
    op.create_table(
        "canvas_courses",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("connection", sa.String(length=30), nullable=False),
        sa.Column("canvas_course", sa.String(length=32), nullable=False),
        sa.Column("course_id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(length=100), nullable=False),
        sa.Column("pulled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.ForeignKeyConstraint(["course_id"], ["courses.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("connection", "canvas_course"),
    )
    op.create_index("ix_canvas_courses_course_id", "canvas_courses", ["course_id"])


def _links() -> None:
    op.create_table(
        "canvas_links",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("canvas_course_id", sa.Integer(), nullable=False),
        sa.Column("canvas_assignment", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("points_possible", sa.Float(), nullable=True),
        sa.Column("pulled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.Column("compared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("compare_error", sa.String(length=500), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["canvas_course_id"], ["canvas_courses.id"]),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("canvas_course_id", "canvas_assignment"),
    )
    op.create_index("ix_canvas_links_assignment_id", "canvas_links", ["assignment_id"])


def _taken() -> None:
    op.create_table(
        "canvas_taken",
        sa.Column("link_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.String(length=32), nullable=True),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["link_id"], ["canvas_links.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.PrimaryKeyConstraint("link_id", "user_id", "attempt"),
    )
    op.create_index("canvas_taken_of_user", "canvas_taken", ["user_id"])
    op.create_index("canvas_taken_of_submission", "canvas_taken", ["submission_id"])


def _scores() -> None:
    op.create_table(
        "canvas_scores",
        sa.Column("link_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("told", sa.String(length=64), nullable=False),
        sa.Column("points", sa.Float(), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("busy_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.Column("given_up", sa.Boolean(), nullable=False),
        sa.Column("theirs", sa.Float(), nullable=True),
        sa.Column("differs_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["link_id"], ["canvas_links.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("link_id", "user_id"),
    )
    op.create_index("canvas_scores_of_user", "canvas_scores", ["user_id"])


def _tries() -> None:
    op.create_table(
        "canvas_tries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("link_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("points", sa.Float(), nullable=True),
        sa.Column("posted", sa.Boolean(), nullable=False),
        sa.Column("error", sa.String(length=500), nullable=False),
        sa.ForeignKeyConstraint(["link_id"], ["canvas_links.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("canvas_tries_of_link", "canvas_tries", ["link_id", "id"])
    op.create_index("canvas_tries_of_user", "canvas_tries", ["user_id"])

"""What was uploaded and is not handed in yet, and grades that wait for a person

Revision: 0011
Before it: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

WAITING = {
    "sqlite_where": sa.text("released_at is null and reviewed_at is null"),
    "postgresql_where": sa.text("released_at is null and reviewed_at is null"),
}


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("form_key", sa.String(length=64), nullable=False),
        sa.Column("documents", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("reading", sa.JSON(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("assignment_id", "user_id"),
    )
    op.create_index("ix_uploads_user_id", "uploads", ["user_id"])
    op.create_index("uploads_by_time", "uploads", ["created_at"])
    op.create_table(
        "upload_files",
        sa.Column("upload_id", sa.String(length=32), nullable=False),
        sa.Column("path", sa.String(length=400), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"]),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"]),
        sa.PrimaryKeyConstraint("upload_id", "path"),
    )
    op.create_index("ix_upload_files_sha256", "upload_files", ["sha256"])
    op.create_index("grades_to_review", "grades", ["round_id", "held"], **WAITING)


def downgrade() -> None:
    """From this revision."""
    op.drop_index("grades_to_review", "grades")
    op.drop_table("upload_files")
    op.drop_table("uploads")

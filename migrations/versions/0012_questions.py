"""Questions to the instructor about what graders judge differently

Revision: 0012_since_0002
Before it: 0011_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0012_since_0002"
down_revision = "0011_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "questions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("wording", sa.Text(), nullable=False),
        sa.Column("model", sa.String(length=300), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("assignment_id", "criterion", "cause"),
    )


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("questions")

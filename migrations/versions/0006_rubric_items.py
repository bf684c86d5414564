"""Rubric items: reusable comments with points, in versions

Revision: 0006_since_0002
Before it: 0005_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0006_since_0002"
down_revision = "0005_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "rubric_items",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("item", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("assignment_id", sa.Integer(), nullable=False),
        sa.Column("criterion", sa.String(length=80), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("points", sa.Float(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("bulk", sa.String(length=32), nullable=False),
        sa.Column("by", sa.Integer(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["assignment_id"], ["assignments.id"]),
        sa.ForeignKeyConstraint(["by"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("item", "number"),
    )
    op.create_index("rubric_items_of_criterion", "rubric_items", ["assignment_id", "criterion"])


def downgrade() -> None:
    """To the one before it, which does not know the changes that apply items: they are undone."""
    op.execute(
        "UPDATE changes SET undone_at = at WHERE kind IN ('item', 'remove_item') AND undone_at IS NULL"
    )
    op.drop_table("rubric_items")

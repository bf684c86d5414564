"""What changed of which course, and what lists of people and of a class look up

Revision: 0015
Before it: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "touches",
        sa.Column("course_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("assignment_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("mark", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("course_id", "assignment_id", "mark"),
    )


def downgrade() -> None:
    """From this revision."""
    op.drop_table("touches")

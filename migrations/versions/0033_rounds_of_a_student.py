"""An index that finds the rounds of a student

Revision: 0033
Before it: 0032
"""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.create_index("rounds_of_student", "rounds", ["student_id", "course_id", "id"])


def downgrade() -> None:
    """To the one before."""
    op.drop_index("rounds_of_student", "rounds")

"""Hand-ins of a student, found by one index

Revision: 0016
Before it: 0015
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    columns = ["student_id", "assignment_id", "number", "created_at", "id"]
    op.create_index("submissions_of_student", "submissions", columns)
    op.drop_index("ix_submissions_student_id", "submissions")


def downgrade() -> None:
    """From this revision."""
    op.create_index("ix_submissions_student_id", "submissions", ["student_id"])
    op.drop_index("submissions_of_student", "submissions")

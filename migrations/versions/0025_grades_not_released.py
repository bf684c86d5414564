"""Grades that are not released, found without reading those of all years

Revision: 0025_since_0002
Before it: 0024_since_0002
"""

from alembic import op

from migrations import online

revision = "0025_since_0002"
down_revision = "0024_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    online.create_index("grades_not_released", "grades", ["submission_id"], where="released_at is null")


def downgrade() -> None:
    """To the one before it."""
    op.drop_index("grades_not_released", "grades")

"""A place in line for each waiting round, and whose turn it is

Revision: 0007
Before it: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

QUEUED = {
    "sqlite_where": sa.text("state = 'queued'"),
    "postgresql_where": sa.text("state = 'queued'"),
}
# everyone's first before anyone's second, in the order of their coming
LINES = """
update rounds set line = counted.ahead from (
    select id, row_number() over (
        partition by priority, course_id, student_id order by created_at, id
    ) - 1 as ahead
    from rounds where state = 'queued'
) as counted
where counted.id = rounds.id
"""
PRIORITIES = """
update round_stages set priority = 'batch'
where round_id in (select id from rounds where priority = 'batch')
"""


def upgrade() -> None:
    """To this revision. What waits gets its place."""
    none = sa.text("0")
    for name in ("served_interactive", "served_batch"):
        op.add_column("courses", sa.Column(name, sa.Integer(), nullable=False, server_default=none))
    op.add_column("rounds", sa.Column("line", sa.Integer(), nullable=False, server_default=none))
    priority = sa.Column("priority", sa.String(length=20), nullable=False, server_default="interactive")
    op.add_column("round_stages", priority)
    op.execute(LINES)
    op.execute(PRIORITIES)
    by_place = ["priority", "course_id", "line", "created_at", "id"]
    op.create_index("queued_rounds", "rounds", by_place, **QUEUED)
    by_student = ["priority", "course_id", "student_id", "line"]
    op.create_index("queued_of_student", "rounds", by_student, **QUEUED)
    op.drop_index("stages_by_state", "round_stages")
    op.create_index("stages_by_state", "round_stages", ["state", "priority", "stage", "not_before"])


def downgrade() -> None:
    """From this revision."""
    op.drop_index("stages_by_state", "round_stages")
    op.drop_index("queued_of_student", "rounds")
    op.drop_index("queued_rounds", "rounds")
    for table, column in (
        ("round_stages", "priority"),
        ("rounds", "line"),
        ("courses", "served_batch"),
        ("courses", "served_interactive"),
    ):
        op.drop_column(table, column)
    op.create_index("stages_by_state", "round_stages", ["state", "not_before"])

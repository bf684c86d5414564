"""What the pages about people need: courses of audit rows, sessions that can be ended, people of a course

Revision: 0009
Before it: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

OF_ASSIGNMENTS = """update audit set course_id =
    (select a.course_id from assignments a where 'assignment:' || a.id = audit.object)
    where object like 'assignment:%'"""
OF_SUBMISSIONS = """update audit set course_id =
    (select a.course_id from submissions s join assignments a on a.id = s.assignment_id
     where s.id = substr(audit.object, 12))
    where object like 'submission:%'"""


def upgrade() -> None:
    """To this revision. Rows about a hand-in or an assignment get its course."""
    op.add_column("audit", sa.Column("course_id", sa.Integer(), nullable=True))
    op.add_column("users", sa.Column("sessions", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.execute(OF_ASSIGNMENTS)
    op.execute(OF_SUBMISSIONS)
    op.create_index("audit_by_course", "audit", ["course_id", "id"])
    op.create_index("audit_by_actor", "audit", ["actor", "id"])
    op.create_index("audit_by_action", "audit", ["action", "id"])
    op.create_index("memberships_of_course", "memberships", ["course_id", "role"])


def downgrade() -> None:
    """Back to the revision before it."""
    op.drop_index("memberships_of_course", "memberships")
    for name in ("action", "actor", "course"):
        op.drop_index(f"audit_by_{name}", "audit")
    op.drop_column("users", "sessions")
    op.drop_column("audit", "course_id")

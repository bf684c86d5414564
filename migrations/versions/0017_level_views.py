"""Who of the staff has seen the machine's levels of a submission, so far read from the audit

Revision: 0017_since_0002
Before it: 0016_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0017_since_0002"
down_revision = "0016_since_0002"
branch_labels = None
depends_on = None

FROM_AUDIT = """
insert into level_views (submission_id, user_id, at)
select submissions.id, viewers.user_id, min(audit.at)
from audit
join submissions on audit.object = 'submission:' || submissions.id
join (
    select 'user:' || id as actor, id as user_id from users
    union all select 'token:' || id as actor, user_id from tokens
) as viewers on viewers.actor = audit.actor
where audit.action in ('grade.view', 'grade.change', 'grade.undo', 'grade.accept')
and viewers.user_id <> submissions.student_id
group by submissions.id, viewers.user_id
"""


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "level_views",
        sa.Column("submission_id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("submission_id", "user_id"),
    )
    op.create_index(op.f("ix_level_views_user_id"), "level_views", ["user_id"])
    op.execute(FROM_AUDIT)


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("level_views")

"""Chores done now and then, and indexes for what retention and erasure look up

Revision: 0003
Before it: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INDEXES = (
    ("submissions_by_time", "submissions", "created_at"),
    ("audit_by_time", "audit", "at"),
    ("idempotency_keys_by_submission", "idempotency_keys", "submission_id"),
    ("inbound_webhooks_by_submission", "inbound_webhooks", "submission_id"),
)


def upgrade() -> None:
    """To this revision."""
    op.create_table(
        "chores",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    for name, table, column in INDEXES:
        op.create_index(name, table, [column])


def downgrade() -> None:
    """From this revision."""
    for name, table, _ in reversed(INDEXES):
        op.drop_index(name, table)
    op.drop_table("chores")

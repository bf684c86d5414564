"""Idempotency keys of any request, with what was answered

Revision: 0031
Before it: 0030
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    with op.batch_alter_table("idempotency_keys") as batch:
        batch.alter_column("submission_id", existing_type=sa.String(length=32), nullable=True)
        batch.add_column(sa.Column("answer", sa.JSON(), nullable=True))


def downgrade() -> None:
    """To the one before. Keys that led to no hand-in are forgotten."""
    op.execute("delete from idempotency_keys where submission_id is null")
    with op.batch_alter_table("idempotency_keys") as batch:
        batch.drop_column("answer")
        batch.alter_column("submission_id", existing_type=sa.String(length=32), nullable=False)

"""Events that were written down before there was anybody to tell are done

Revision: 0004
Before it: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision. Else the first receiver would be told of everything that ever happened."""
    op.execute("update outbox set done_at = created_at where kind = 'event' and done_at is null")


def downgrade() -> None:
    """From this revision: the one before never looks at events."""

"""Finding messages that were given up without reading all that were ever sent

Revision: 0012
Before it: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

GIVEN_UP = "done_at is not null and error <> ''"


def upgrade() -> None:
    """To this revision."""
    where = sa.text(GIVEN_UP)
    op.create_index("outbox_dead", "outbox", ["kind", "id"], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """Back to the one before."""
    op.drop_index("outbox_dead", table_name="outbox")

"""${message}

Revision: ${up_revision}
Before it: ${down_revision | comma,n}
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Back to the one before."""
    ${downgrades if downgrades else "pass"}

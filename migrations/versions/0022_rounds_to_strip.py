"""Rounds to strip and files to move, found without reading those of all years

Revision: 0022_since_0002
Before it: 0021_since_0002
"""

from alembic import op

from migrations import online

revision = "0022_since_0002"
down_revision = "0021_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    online.create_index("blobs_to_move", "blobs", ["size"], where="object_key is null and size > 65536")
    online.create_index("rounds_to_strip", "rounds", ["finished_at"], where="prepared is not null")


def downgrade() -> None:
    """To the one before it."""
    op.drop_index("rounds_to_strip", "rounds")
    op.drop_index("blobs_to_move", "blobs")

"""Large files in an object store

Revision: 0021_since_0002
Before it: 0020_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0021_since_0002"
down_revision = "0020_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("blobs", sa.Column("object_key", sa.String(length=100), nullable=True))
    op.create_table(
        "unused_objects",
        sa.Column("key", sa.String(length=100), nullable=False),
        sa.Column("delete_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index(op.f("ix_unused_objects_delete_at"), "unused_objects", ["delete_at"])


def downgrade() -> None:
    """To the one before it. Raises RuntimeError while files are in the object store."""
    count = sa.text("select count(*) from blobs where object_key is not null")
    if op.get_bind().execute(count).scalar_one():
        raise RuntimeError("files are in the object store; move them with `grader files to-database` first")
    op.drop_table("unused_objects")
    op.drop_column("blobs", "object_key")

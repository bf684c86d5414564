"""Wrong passwords are counted by where they come from, no account is locked, and sessions end here

Revision: 0034
Before it: 0033
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision. Accounts that are locked are so no longer, and everybody is signed out, once."""
    op.create_table(
        "sign_in_tries",
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("account", "source"),
    )
    op.create_index("sign_in_tries_by_time", "sign_in_tries", ["last_at"])
    op.create_table(
        "open_sessions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("open_sessions_of_user", "open_sessions", ["user_id", "begun_at"])
    op.create_index("open_sessions_by_time", "open_sessions", ["begun_at"])
    op.drop_column("users", "locked_until")
    op.drop_column("users", "failed_logins")


def downgrade() -> None:
    """To the one before."""
    op.add_column("users", sa.Column("failed_logins", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("users", sa.Column("locked_until", sa.DateTime(timezone=True), nullable=True))
    op.drop_table("open_sessions")
    op.drop_table("sign_in_tries")

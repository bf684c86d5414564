"""Single sign-on: what rules gave an identity, which session came from a provider, tokens that were used

Revision: 0023_since_0002
Before it: 0022_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0023_since_0002"
down_revision = "0022_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    granted = sa.Column("granted", sa.JSON(), server_default=sa.text("'{}'"), nullable=False)
    op.add_column("identities", granted)
    op.add_column("open_sessions", sa.Column("identity_id", sa.Integer(), nullable=True))
    for column in (
        sa.Column("provider_session", sa.String(length=255), server_default="", nullable=False),
        sa.Column("id_token", sa.Text(), server_default="", nullable=False),
    ):
        op.add_column("open_sessions", column)
    op.create_index("open_sessions_of_identity", "open_sessions", ["identity_id"])
    op.create_table(
        "used_sign_on_tokens",
        sa.Column("provider", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("provider", "hash"),
    )
    op.create_index("used_sign_on_tokens_by_time", "used_sign_on_tokens", ["until"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("used_sign_on_tokens")
    op.drop_index("open_sessions_of_identity", "open_sessions")
    with op.batch_alter_table("open_sessions") as table:
        for name in ("id_token", "provider_session", "identity_id"):
            table.drop_column(name)
    with op.batch_alter_table("identities") as table:
        table.drop_column("granted")

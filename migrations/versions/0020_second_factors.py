"""Second factors: TOTP secrets, recovery codes, and break-glass accounts

Revision: 0020_since_0002
Before it: 0019_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0020_since_0002"
down_revision = "0019_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("users", sa.Column("break_glass", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "second_factors",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("salt", sa.String(length=64), nullable=False),
        sa.Column("key_mark", sa.String(length=8), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("user_id"),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_index("ix_recovery_codes_user_id", "recovery_codes", ["user_id"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("recovery_codes")
    op.drop_table("second_factors")
    op.drop_column("users", "break_glass")

"""Gateway use: what API tokens use of the models a day, and a limit of their own

Revision: 0008_since_0002
Before it: 0007_since_0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0008_since_0002"
down_revision = "0007_since_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """To this revision."""
    op.add_column("tokens", sa.Column("daily_tokens", sa.BigInteger(), nullable=True))
    op.create_table(
        "gateway_use",
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("model", sa.String(length=300), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"]),
        sa.PrimaryKeyConstraint("token_id", "day", "model"),
    )
    op.create_index("gateway_use_by_day", "gateway_use", ["day"])


def downgrade() -> None:
    """To the one before it."""
    op.drop_table("gateway_use")
    op.drop_column("tokens", "daily_tokens")

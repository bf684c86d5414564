"""Losses, drained machines, and what runs measured in columns of their own

Revision: 0002
Before it: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def measures() -> list[sa.Column]:
    return [
        sa.Column("engine", sa.String(length=40), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("first_token_s", sa.Float(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("cached_tokens", sa.Integer(), nullable=True),
        sa.Column("output_tokens", sa.Integer(), nullable=True),
    ]


def counts() -> list[sa.Column]:
    return [
        sa.Column("losses", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("alone", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("avoid", sa.JSON(), nullable=False, server_default="[]"),
    ]


def upgrade() -> None:
    """To this revision. Measures of earlier runs stay empty; their results still hold them."""
    op.create_table(
        "drains",
        sa.Column("machine", sa.String(length=40), nullable=False),
        sa.Column("why", sa.String(length=200), nullable=False),
        sa.Column("by", sa.String(length=100), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("machine"),
    )
    # plain ALTERs: copying the tables, as batch mode may, would take long on a large store
    for column in counts():
        op.add_column("round_stages", column)
    for column in measures():
        op.add_column("runs", column)
    op.create_index("runs_by_end", "runs", ["finished_at"])
    op.create_index("rounds_by_end", "rounds", ["finished_at", "state", "priority", "created_at"])


def downgrade() -> None:
    """From this revision."""
    op.drop_index("rounds_by_end", "rounds")
    op.drop_index("runs_by_end", "runs")
    for table, columns in (("runs", measures()), ("round_stages", counts())):
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_column(column.name)
    op.drop_table("drains")
